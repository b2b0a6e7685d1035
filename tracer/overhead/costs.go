package overhead

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/process"
)

// mappingCostNS is the cost of tracing a call that changes the address space, without its stack
// walk, in ns: a tracepoint and the call's site. A virtual machine has shown it, with a program that
// maps and unmaps.
const mappingCostNS = 750

// blockCostRatio is the cost of a report of a block in entries of an allocator function. The entries
// are calibrated in a loop. Between two reports a program runs for microseconds, and the probe finds
// little of its code and data in the caches. BenchmarkLaunches has both costs.
const blockCostRatio = 1.5

// MeasureCosts measures the costs of probes as they are attached in a process, or in any if it is
// nil. It measures a child process, before anything is traced. It samples nothing, and resets the
// counters in the end. faultPeriod is the number of page faults per sample. ctx ends the measurement
// early.
func MeasureCosts(
	ctx context.Context, k *kernel.Kernel, p *process.Process, faultPeriod uint64,
	timeout time.Duration, detach func([]link.Link),
) (calibrate.Costs, error) {
	const tooLong = 1 << 30 // bytes between samples; the child allocates less
	if err := k.SetIntervals(tooLong, 0); err != nil {
		return calibrate.DefaultCosts, err
	}

	way := k.WayIn(p)
	costs, err := calibrate.Measure(ctx, calibrate.Tracing{
		Mode: way.Mode, Programs: way.Programs, OfProducer: k.SamplesItself,
		SetTraced: k.SetTraced, Detach: detach,
		FaultPeriod: faultPeriod,
		Timeout:     timeout,
	})
	return costs, errors.Join(err, k.SetIntervals(0, 0), k.ResetCounters())
}

// Charges returns the costs as the BPF programs charge them.
func Charges(c controller.Costs) bpf.ProbeCosts {
	return bpf.ProbeCosts{
		Entry:      uint32(c.Entry),
		Stepped:    uint32(c.Stepped),
		Follow:     uint32(c.Return),
		Sample:     controller.SampleCost,
		Fault:      uint32(c.Fault),
		Mapping:    uint32(c.Mapping),
		DriverCall: uint32(c.DriverCall),
		Block:      uint32(c.Block),
		ShimPair:   uint32(1000 * c.ShimPair),
	}
}

// CostsOf returns the costs of one event of each kind. Where the kernel lacks uprobe sessions, a
// separate probe is at the return of each call; the counters have the returns that were probed.
func CostsOf(c calibrate.Costs) controller.Costs {
	return controller.Costs{
		ShimPair:   c.ShimPair,
		Entry:      c.Entry,
		Stepped:    c.Stepped,
		Return:     c.Return,
		Fault:      c.Fault,
		Mapping:    mappingCostNS,
		DriverCall: c.Entry + c.Return,
		Block:      blockCostRatio * c.Entry,
	}
}
