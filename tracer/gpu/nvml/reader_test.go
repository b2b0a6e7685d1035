package nvml

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

func TestReadProcesses(t *testing.T) {
	onInstance := func(instance uint32, bytes uint64) processEntry {
		return processEntry{7, instance, 0, bytes}
	}
	const unreported = "GPU 0: the memory of some processes is not reported"

	for name, c := range map[string]struct {
		lists  map[processList][]processEntry
		reason string
		want   []Process
	}{
		"several MIG instances": {
			lists: map[processList][]processEntry{
				computeList:  {onInstance(1, 10), onInstance(2, 20)},
				graphicsList: {onInstance(2, 20)},
			},
			want: []Process{{7, 30}},
		},
		"memory that one list reports": {
			lists: map[processList][]processEntry{
				computeList:  {entry(7, notAvailable), entry(8, 4)},
				graphicsList: {entry(7, 10), entry(8, notAvailable)},
			},
			want: []Process{{7, 10}, {8, 4}},
		},
		"impossible PIDs and sizes": {
			lists: map[processList][]processEntry{
				computeList: {
					entry(0, 1), entry(math.MaxUint32, 1), entry(7, 101), entry(8, 1<<63),
				},
			},
			reason: unreported,
			want:   []Process{{7, growth.Unknown}, {8, growth.Unknown}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mustOpen(t, fake(&fakeDevice{total: 100, lists: c.lists}))
			checkReading(t, m.Read(), c.reason,
				GPU{Total: 100, Instance: wholeGPU, Processes: c.want})
		})
	}
}

func TestReaderRead(t *testing.T) {
	t.Run("impossible memory", func(t *testing.T) {
		t.Parallel()
		bare := func(index int) GPU {
			g := GPU{Index: index, Instance: wholeGPU}.withoutFigures()
			g.Processes = []Process{}
			return g
		}
		m := mustOpen(t,
			fake(&fakeDevice{used: 101, total: 100}, &fakeDevice{used: 1, total: 1 << 60}))
		checkReading(t, m.Read(), "GPU 0: memory: the driver's figures make no sense; "+
			"GPU 1: memory: the driver's figures make no sense", bare(0), bare(1))
	})

	t.Run("MIG devices that are unreadable", func(t *testing.T) {
		t.Parallel()
		m := mustOpen(t, fake(&fakeDevice{
			used: 4, total: 9, migDevices: []*fakeDevice{}, migError: ErrNoPermission,
			lists: map[processList][]processEntry{computeList: {entry(7, 1)}},
		}))
		checkReading(t, m.Read(), "GPU 0: MIG devices: no permission (run as root on the host)",
			GPU{0, wholeGPU, "", "", 4, 9, []Process{{7, 1}}})
	})

	t.Run("panic of the binding", func(t *testing.T) {
		t.Parallel()
		m := mustOpen(t, &fakeDriver{onCount: func() { panic("index out of range") }})
		checkReading(t, m.Read(),
			"read NVML: the driver's answer makes no sense: index out of range")
	})

	t.Run("driver without a version", func(t *testing.T) {
		t.Parallel()
		r := mustOpen(t, &fakeDriver{versionError: errNoFunction}).Read()
		if r.Driver != "unknown" || r.Reason != "" {
			t.Errorf("%+v", r)
		}
	})
}

func TestReaderLostGPU(t *testing.T) {
	t.Parallel()
	gpu := &fakeDevice{id: "GPU-a", title: "name", used: 4, total: 9}
	m := mustOpen(t, fake(gpu, &fakeDevice{used: 5, total: 9}))
	m.Read()

	gpu.handleError = errLost
	lost := GPU{Instance: wholeGPU, UUID: "GPU-a", Name: "name"}.withoutFigures()
	checkReading(t, m.Read(), "GPU 0: "+errLost.Error(), lost,
		GPU{1, wholeGPU, "", "", 5, 9, []Process{}})
}

func TestReaderLimits(t *testing.T) {
	t.Run("GPUs, MIG devices and processes", func(t *testing.T) {
		t.Parallel()
		var entries []processEntry
		for pid := range uint32(maxProcesses + 100) {
			entries = append(entries, entry(pid+1, uint64(pid+1)))
		}
		crowded := &fakeDevice{
			total: 1 << 30,
			lists: map[processList][]processEntry{computeList: entries},
		}

		divided := &fakeDevice{migDevices: make([]*fakeDevice, maxMIGDevices+5)}
		for i := range divided.migDevices {
			divided.migDevices[i] = &fakeDevice{}
		}

		gpus := []*fakeDevice{crowded, divided}
		for len(gpus) < maxGPUs+3 {
			gpus = append(gpus, &fakeDevice{})
		}

		r := mustOpen(t, fake(gpus...)).Read()
		if want := maxGPUs - 1 + maxMIGDevices; len(r.GPUs) != want {
			t.Errorf("%d GPUs, want %d", len(r.GPUs), want)
		}
		kept := r.GPUs[0].Processes
		if len(kept) != maxProcesses || kept[0] != (Process{101, 101}) {
			t.Errorf("%d processes from %v, want %d, those with the most memory", len(kept),
				kept[0], maxProcesses)
		}
		for _, part := range []string{"first 64 GPUs", "first 8 MIG devices", "4096 processes"} {
			if !strings.Contains(r.Reason, part) {
				t.Errorf("%q lacks %q", r.Reason, part)
			}
		}
	})

	t.Run("missing parts", func(t *testing.T) {
		t.Parallel()
		var gpus []*fakeDevice
		for range maxGPUs {
			gpus = append(gpus, &fakeDevice{handleError: errLost})
		}
		r := mustOpen(t, fake(gpus...)).Read()
		if n := strings.Count(r.Reason, "; "); n != maxMissingParts ||
			!strings.HasSuffix(r.Reason, "; and more") {
			t.Errorf("%q", r.Reason)
		}
	})
}

func TestReaderRestart(t *testing.T) {
	for _, failure := range []error{errDriverGone, ErrMismatch} {
		t.Run(failure.Error(), func(t *testing.T) {
			t.Parallel()
			gpu := &fakeDevice{id: "GPU-a", used: 4, total: 9}
			d := fake(gpu)
			m := mustOpen(t, d)
			full := GPU{0, wholeGPU, "GPU-a", "", 4, 9, []Process{}}
			checkReading(t, m.Read(), "", full)

			gpu.memoryError = failure
			checkReading(t, m.Read(), "read NVML: "+failure.Error(), full.withoutFigures())

			gpu.memoryError = nil
			for range restartReadings - 1 {
				checkReading(t, m.Read(), "read NVML: "+failure.Error(), full.withoutFigures())
			}
			checkReading(t, m.Read(), "", full)
			if d.starts != 2 || d.stops != 1 {
				t.Errorf("%d starts and %d stops, want 2 and 1", d.starts, d.stops)
			}
		})
	}

	t.Run("driver that does not come back", func(t *testing.T) {
		t.Parallel()
		d := &fakeDriver{countError: errors.New("nothing works")}
		m := mustOpen(t, d)
		checkReading(t, m.Read(), "read NVML: count the GPUs: nothing works")

		d.startError = fmt.Errorf("%w: still", ErrNoPermission)
		for range 3 * restartReadings {
			m.Read()
		}
		if d.starts != 4 {
			t.Errorf("%d starts, want 4", d.starts)
		}
		if r := m.Read(); !strings.Contains(r.Reason, "no permission: still") ||
			!strings.Contains(r.Reason, "run as root") {
			t.Errorf("%q", r.Reason)
		}
	})
}
