package tracer

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
)

// Prices of what probes do on this machine, as measured before counting began; an error says why some are defaults. Zeros:
// the overhead has no limit, and nothing was measured.
func (s *Session) Prices() (calibrate.Prices, error) { return s.prices, s.unpriced }

// detachBeside closes links whose probes nobody meets any more, while the session goes on.
func (s *Session) detachBeside(links []link.Link) {
	s.watcher.Go(func() { _ = probe.Close(links) }) // what cannot be detached goes with our end
}

// measurePrices measures before there are targets, with a child in their place. Nothing is sampled meanwhile, and what the
// child has counted is forgotten. interval is that of page faults.
func (k *kernel) measurePrices(interval uint64, patience time.Duration, detach func([]link.Link)) (calibrate.Prices, error) {
	if err := k.open(MaxInterval, 0); err != nil {
		return calibrate.Defaults, err
	}
	prices, err := calibrate.Measure(calibrate.Tracing{
		Mode: k.mode, Programs: k.programs(), SetTraced: k.setTraced, Detach: detach,
		OnFault: k.Programs[bpf.KernelProgOnFault], FaultPeriod: faultPeriod(interval),
		Patience: patience,
	})
	return prices, errors.Join(err, k.open(0, 0), k.resetCounters())
}

// setTraced adds a process to those that count, or takes it out.
func (k *kernel) setTraced(pid int, traced bool) error {
	if traced {
		return k.setTarget(pid, bpf.KernelTargetStateTARGET_TRACED)
	}
	if err := k.Maps[bpf.KernelMapTargets].Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove target: %w", err)
	}
	return nil
}

// resetCounters sets them to zero, while nothing counts.
func (k *kernel) resetCounters() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	counters, zeros := k.Maps[bpf.KernelMapCounters], make([]uint64, cpus)
	for i := range counters.MaxEntries() {
		if err := counters.Put(i, zeros); err != nil {
			return fmt.Errorf("reset counters: %w", err)
		}
	}
	return nil
}
