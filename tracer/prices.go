package tracer

import (
	"errors"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
)

// measurePrices measures before there are targets, with a child in their place. Nothing is sampled meanwhile, and what the
// child has counted is forgotten. period is that of page faults.
func measurePrices(k *kernel, period uint64, patience time.Duration, detach func([]link.Link)) (calibrate.Prices, error) {
	if err := k.open(1<<30, 0); err != nil {
		return calibrate.Defaults, err
	}
	prices, err := calibrate.Measure(calibrate.Tracing{
		Mode: k.mode, Programs: k.programs(), SetTraced: k.setTraced, Detach: detach,
		OnFault: k.Programs[bpf.KernelProgOnFault], FaultPeriod: period,
		Patience: patience,
	})
	return prices, errors.Join(err, k.open(0, 0), k.resetCounters())
}
