package source

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

var errNoOwner = errors.New("a real-time kernel does not say who owns a lock")

// attachWaits attaches to the kernel's reports of threads that wait for a lock: bpf/source/wait.bpf.h.
// The kernel has them since Linux 5.19, but not who owns a lock where it is a real-time kernel.
func attachWaits(k *kernel.Kernel) ([]link.Link, error) {
	begin, err := k.Program(bpf.ProgOnWait)
	if err != nil {
		return nil, err
	}
	hasOwner, err := begin.Run(&ebpf.RunOptions{Context: [2]uint64{}}) // see on_wait
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", bpf.ProgOnWait, err)
	}
	if hasOwner == 0 {
		return nil, errNoOwner
	}

	var links []link.Link
	for _, at := range []struct{ tracepoint, program string }{
		{"contention_end", bpf.ProgOnWaitEnd}, // first: a wait must not be seen without its end
		{"contention_begin", bpf.ProgOnWait},
	} {
		l, err := attachRaw(k, at.tracepoint, at.program)
		if err != nil {
			return nil, errors.Join(err, probe.Close(links))
		}
		links = append(links, l)
	}
	return links, nil
}
