// Package source attaches the probes and tracepoints that see memory change hands. Sources heap,
// tensor, cuda and step probe libraries of one process. Sources mapping and fault see all
// processes.
package source

import (
	"fmt"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/probe"
)

// Names returns the names of all sources:
//   - heap: the functions of the C allocator
//   - tensor: the functions that PyTorch allocates CPU tensors with
//   - cuda: the CUDA driver API, and the blocks of PyTorch's CUDA caching allocator
//   - mapping: the system calls that change the address space
//   - fault: page faults
//   - step: training steps
func Names() []string { return []string{"heap", "tensor", "cuda", "mapping", "fault", "step"} }

// A Status describes whether a source is attached, for people.
type Status struct {
	Name string
	// PID is the process that the source probes, 0 for all.
	PID int
	// Reason is why the source is not attached, or not to all its functions. It is empty if there is
	// nothing to report.
	Reason string
	// Gap is the data that the source does not see; empty: none.
	Gap growth.SourceGap
	// Attached is set once probes were attached, and stays set while they are closed for a time.
	Attached bool
	// Off is set if the user did not ask for the source.
	Off bool
	// Err is the error behind Reason, nil if there is none.
	Err error
	// Producers are the files that sample the heap themselves, whose probes source heap uses instead of
	// malloc's.
	Producers []string
	// Details are lines for --debug: each probed function, its place, and the reason for the place.
	Details []string
}

// details returns a line for each function in the files, probed or not.
func details(files ...probe.FileSites) (lines []string) {
	for _, file := range files {
		path := file.Mapping.Path
		for _, s := range file.Sites {
			lines = append(lines, fmt.Sprintf("%s in %s at file offset %#x: %s",
				s.Function.Name, path, s.Offset, s.Reason))
		}
		for _, function := range file.Unprobed {
			lines = append(lines, fmt.Sprintf("not probed in %s: %s", path, function))
		}
	}
	return lines
}

// WithRemedy returns a remedy in the form in which it follows an error, or "" if there is none.
func WithRemedy(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (" + remedy + ")"
}
