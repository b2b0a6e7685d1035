package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/distribution"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/software"
	"github.com/allocscope/allocscope/tracer/source"
)

// checkSources returns ErrNoSource, with the reasons, if no source is attached. If the sources of
// all processes and source heap are off, the others may wait for their libraries.
func checkSources(ofProcess, ofAll []source.Status) error {
	isOn := func(s source.Status) bool { return !s.Off }
	mayWait := !slices.ContainsFunc(ofAll, isOn) && ofProcess[0].Off

	var reasons []string
	for _, s := range withSystem(ofProcess, ofAll) {
		if s.Name == "step" { // it sees no memory
			continue
		}
		if s.Attached || mayWait && !s.Off && s.Err == nil {
			return nil
		}
		reasons = append(reasons, s.Name+": "+cmp.Or(s.Reason, string(s.Gap), "not asked for"))
	}
	return fmt.Errorf("%w: %s", ErrNoSource, strings.Join(reasons, "; "))
}

// withSystem puts the sources of all processes behind source heap.
func withSystem(ofProcess, ofAll []source.Status) []source.Status {
	return slices.Insert(ofProcess, min(1, len(ofProcess)), ofAll...)
}

// Sources returns the state of each source, with the reason if it is not attached.
func (s *Session) Sources() []source.Status {
	s.following.Lock()
	defer s.following.Unlock()
	var ofProcesses []source.Status
	ofAll := s.system.Statuses()
	for _, t := range s.targets.list() {
		if errors.Is(t.sources.Heap.Status().Err, probe.Err32Bit) {
			isMapping := func(of source.Status) bool { return of.Name == "mapping" }
			i := slices.IndexFunc(ofAll, isMapping)
			ofAll[i].Gap = growth.Gap32BitCalls
		}
		ofProcesses = append(ofProcesses, t.statuses()...)
	}
	return withSystem(ofProcesses, ofAll)
}

// fileReader reads files in the root directories of targets.
type fileReader struct {
	targets *targetSet
	reading *sync.Mutex // the session's
}

// FindDebugPackage returns the package with the symbols of a file that a traced process has mapped.
// The process may have ended.
func (f fileReader) FindDebugPackage(pid int, file string) growth.DebugPackage {
	t := f.targets.find(uint32(pid))
	if t == nil {
		return growth.DebugPackage{}
	}

	f.reading.Lock()
	defer f.reading.Unlock()
	root, files := inRoot(t.process, file)
	if root == "" {
		return growth.DebugPackage{}
	}
	return distribution.FindDebug(root, files[0])
}

// Software returns the versions of the software of a traced process, which may have ended.
func (f fileReader) Software(pid int) growth.Software {
	t := f.targets.find(uint32(pid))
	if t == nil {
		return growth.Software{}
	}

	f.reading.Lock()
	defer f.reading.Unlock()
	var found growth.Software
	if root, files := inRoot(t.process, t.stacks.Files()...); root != "" {
		found = software.Of(root, files)
	}
	found.Python = t.unwinder.PythonVersion()
	return found
}

// inRoot returns the root directory of a process, and the paths of files in it. The root is empty
// if it is not known.
func inRoot(p *process.Process, files ...string) (root string, inside []string) {
	root = p.HoldRoot()
	if root == "" {
		return "", nil
	}

	// Behind chroot(2) alone, the kernel shows the path outside.
	outside, err := os.Readlink(root)
	for _, file := range files {
		if err == nil && outside != "/" {
			file = strings.TrimPrefix(file, outside)
		}
		inside = append(inside, file)
	}
	return root, inside
}

// statuses returns the states of the target's own sources, except for sources of libraries that the
// process has not loaded.
func (t *target) statuses() []source.Status {
	sources := t.sources.Reported()
	sources = slices.Insert(sources, 1, t.unwinder.Status()...) // after the heap's

	if t.pagesErr != nil && t.isAlive() {
		reason := t.pagesErr.Error() + source.WithRemedy(residency.Remedy(t.pagesErr))
		sources = append(sources, source.Status{Name: "breakdown", Reason: reason, Err: t.pagesErr})
	}
	for i := range sources {
		sources[i].PID = t.process.PID
	}
	return sources
}
