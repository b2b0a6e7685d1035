package overhead

import (
	"context"
	"errors"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
)

// MeasureCosts measures before there are targets, with a child in their place. Nothing is sampled meanwhile, and what the
// child has counted is forgotten. period is that of page faults. ctx ends the measurement early.
func MeasureCosts(
	ctx context.Context, k *kernel.Kernel, period uint64, patience time.Duration, detach func([]link.Link),
) (calibrate.Costs, error) {
	if err := k.SetIntervals(1<<30, 0); err != nil {
		return calibrate.DefaultCosts, err
	}
	prices, err := calibrate.Measure(ctx, calibrate.Tracing{
		Mode: k.Mode, Programs: k.HeapPrograms(), SetTraced: k.SetTraced, Detach: detach,
		OnFault: k.OnFault, FaultPeriod: period,
		Timeout: patience,
	})
	return prices, errors.Join(err, k.SetIntervals(0, 0), k.ResetCounters())
}
