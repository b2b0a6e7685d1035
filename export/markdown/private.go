package markdown

import (
	"cmp"
	"path"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/export/summary"
)

// anonymous is a copy of a summary without the arguments of the process, and without the texts that
// may have names of users or folders.
func anonymous(of *summary.Summary) *summary.Summary {
	s := *of
	s.Process.Arguments = nil // Command has the program and its script

	s.Sources = nil
	for _, source := range of.Sources {
		source.File = baseOf(source.File)
		if strings.Contains(source.Detail, "/") {
			source.Detail = cmp.Or(source.Errno, "an error")
		}
		s.Sources = append(s.Sources, source)
	}

	if of.Outside != nil {
		outside := *of.Outside
		if outside.Path != sharedMemory {
			outside.Path = baseOf(outside.Path)
		}
		outside.Largest = baseOf(outside.Largest)
		s.Outside = &outside
	}
	return &s
}

// baseOf is the last part of a path; empty of an empty one.
func baseOf(file string) string {
	if file == "" {
		return ""
	}
	return path.Base(file)
}

// sharedMemory is the folder of POSIX shared memory, which has the same name everywhere
// (shm_overview(7)).
const sharedMemory = "/dev/shm"

// absolutePath matches an absolute path within a text, and the character before it, which is none of
// "MiB/min" or "../file".
var absolutePath = regexp.MustCompile(`(^|[^\w.)\]%-])(/[^\s'"(),<>\[\]]+)`)

// withoutFolders replaces the absolute paths in a text by their last part.
func withoutFolders(text string) string {
	return absolutePath.ReplaceAllStringFunc(text, func(found string) string {
		at := strings.Index(found, "/")
		if found[at:] == sharedMemory {
			return found
		}
		return found[:at] + path.Base(found[at:])
	})
}
