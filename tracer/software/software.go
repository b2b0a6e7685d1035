// Package software reads the versions of the software of a process, by the files that it has mapped.
//
// The files are hostile input: the reads are bounded, and a text that is no version is none.
package software

import (
	"path"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// extension begins the name of PyTorch's own module, torch._C, which lies in the folder of its package.
const extension = "_C."

// maxSourceBytes bounds the version.py of PyTorch, which has some 300 bytes.
const maxSourceBytes = 16 << 10

var (
	// bannerOfGlibc is the line that the C library prints where it is executed, in its constants
	// (https://sourceware.org/git/?p=glibc.git;a=blob;f=csu/version.c).
	bannerOfGlibc = regexp.MustCompile(`GNU C Library \([^)\n]{1,64}\) [a-z]{1,16} release ` +
		`version ([0-9]{1,2}\.[0-9]{1,3}(?:\.[0-9]{1,4})?)`)
	// torchVersion is the line of torch/version.py
	// (https://github.com/pytorch/pytorch/blob/main/tools/generate_torch_version.py).
	torchVersion = regexp.MustCompile(`(?m)^__version__ = ['"]([0-9][0-9A-Za-z.+_-]{0,63})['"]`)
)

// Of returns the versions by the files at these paths in a root directory, but for Python's.
func Of(root string, files []string) growth.Software {
	var found growth.Software
	for _, file := range files {
		folder, name := path.Split(file)
		if strings.HasPrefix(name, extension) && path.Base(folder) == "torch" && found.Torch == "" {
			found.Torch = torchOf(root, path.Join(folder, "version.py"))
		}

		switch a := allocators.OfFile(file); {
		case a == nil:
		case a.InLibc && found.Libc == "":
			found.Libc = libcOf(root, file, a.Name)
		case !a.InLibc && found.Malloc == "":
			found.Malloc = a.Name
		}
	}
	return found
}

// torchOf is the version of PyTorch in a file of its package.
func torchOf(root, file string) string {
	source, err := hostile.OpenInRoot(root, file)
	if err != nil {
		return ""
	}
	defer source.Close()
	text, err := source.ReadAll(maxSourceBytes)
	if err != nil {
		return ""
	}
	if m := torchVersion.FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return ""
}

// libcOf is the name of a C library, and the version of glibc.
func libcOf(root, library, name string) string {
	f, err := hostile.OpenInRoot(root, library)
	if err != nil {
		return name
	}
	defer f.Close()
	file, err := symbol.Open(f, library)
	if err != nil {
		return name
	}
	if m := bannerOfGlibc.FindSubmatch(file.Constants()); m != nil {
		return name + " " + string(m[1])
	}
	return name
}
