package source

import (
	"fmt"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// followedFiles are files whose functions are followed to their returns.
type followedFiles struct {
	files []probe.FileSites
	// unsafe is why none of them has a return probe; nil: they have.
	unsafe error
}

// follow chooses how the returns of functions are followed in a process: by return probes, unless
// these could end it.
func follow(k *kernel.Kernel, p *process.Process, files []probe.FileSites) (followedFiles, error) {
	unsafe := k.CheckReturns(p)
	if unsafe == nil {
		return followedFiles{files: files}, nil
	}

	files, err := probe.WithoutReturnProbes(files)
	if err != nil {
		return followedFiles{}, fmt.Errorf("%w: %w", unsafe, err)
	}
	return followedFiles{files, unsafe}, nil
}
