package tracer

import (
	"context"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// MeasurePrices measures them on a kernel of its own, whose maps it shows to look afterwards.
func MeasurePrices(mode probe.Mode, look func(maps map[string]*ebpf.Map)) (prices calibrate.Costs, err error) {
	k, err := kernel.Load(Options{Mode: mode}.withDefaults().kernel())
	if err != nil {
		return prices, err
	}
	defer k.Close()
	prices, err = overhead.MeasureCosts(context.Background(), k, source.FaultPeriod(kernel.DefaultInterval), time.Minute, func(links []link.Link) { probe.Close(links) })
	look(byName[*ebpf.Map](k.Maps))
	return prices, err
}

// MeetCalibration calls meet with the PID of the child once its functions are probed and it counts.
func MeetCalibration(meet func(pid int)) error {
	k, err := kernel.Load(Options{}.withDefaults().kernel())
	if err != nil {
		return err
	}
	_, err = calibrate.Measure(context.Background(), calibrate.Tracing{
		Mode: k.Mode, Programs: k.HeapPrograms(), Detach: func([]link.Link) {}, Timeout: time.Minute,
		SetTraced: func(pid int, traced bool) error { meet(pid); return nil },
	})
	return err
}
