package tracer

import (
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
)

// MeasurePrices measures them on a kernel of its own, whose maps it shows to look afterwards.
func MeasurePrices(mode probe.Mode, look func(maps map[string]*ebpf.Map)) (prices calibrate.Prices, err error) {
	k, err := loadKernel(Options{Mode: mode}.withDefaults())
	if err != nil {
		return prices, err
	}
	defer k.Close()
	prices, err = k.measurePrices(DefaultInterval, time.Minute, func(links []link.Link) { probe.Close(links) })
	look(k.Maps)
	return prices, err
}

// MeetCalibration calls meet with the PID of the child once its functions are probed and it counts.
func MeetCalibration(meet func(pid int)) error {
	k, err := loadKernel(Options{}.withDefaults())
	if err != nil {
		return err
	}
	_, err = calibrate.Measure(calibrate.Tracing{
		Mode: k.mode, Programs: k.programs(), Detach: func([]link.Link) {}, Patience: time.Minute,
		SetTraced: func(pid int, traced bool) error { meet(pid); return nil },
	})
	return err
}
