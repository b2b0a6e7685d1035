package source

import (
	"fmt"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// A followed is files whose functions are followed to their returns.
type followed struct {
	files []probe.FileSites
	// unsafe is why none of them has a return probe; nil: they have.
	unsafe error
}

// follow chooses how the returns of functions are followed in a process: by return probes, unless
// these could end it.
func follow(k *kernel.Kernel, p *process.Process, files []probe.FileSites) (followed, error) {
	unsafe := k.CheckReturns(p)
	if unsafe == nil {
		return followed{files: files}, nil
	}

	files, err := probe.WithoutReturnProbes(files)
	if err != nil {
		return followed{}, fmt.Errorf("%w: %w", unsafe, err)
	}
	return followed{files, unsafe}, nil
}
