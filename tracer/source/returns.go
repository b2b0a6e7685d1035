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

// maxAttaches bounds how often probes are attached again since the thread has ended by which the
// kernel knows the process.
const maxAttaches = 8

// attachIn attaches probes in a process, by a thread that lives.
func attachIn[T any](
	k *kernel.Kernel, p *process.Process, attach func(way kernel.Way) (T, error),
) (links T, err error) {
	for range maxAttaches {
		way := k.WayIn(p)
		links, err = attach(way)
		if err == nil || p.TID() == way.TID {
			break
		}
	}
	return links, err
}
