package nvml

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

func mustSee(t *testing.T, m *Monitor, reason string, want ...GPU) {
	t.Helper()
	r := m.Read()
	if r.Reason != reason {
		t.Errorf("reason %q, want %q", r.Reason, reason)
	}
	if !reflect.DeepEqual(r.GPUs, want) {
		t.Errorf("GPUs\n%+v, want\n%+v", r.GPUs, want)
	}
}

func TestAProcessOnSeveralInstancesHasTheirSum(t *testing.T) {
	t.Parallel()
	on := func(instance uint32, bytes uint64) use { return use{7, instance, 0, bytes} }
	gpu := &fakeDevice{total: 100, lists: map[list][]use{compute: {on(1, 10), on(2, 20)}, graphics: {on(2, 20)}}}
	mustSee(t, mustOpen(t, &fakeDriver{gpus: []*fakeDevice{gpu}}), "", GPU{Total: 100, Instance: whole, Processes: []Process{{7, 30}}})
}

func TestWhatOneListKnowsStandsForWhatAnotherDoesNot(t *testing.T) {
	t.Parallel()
	gpu := &fakeDevice{total: 100, lists: map[list][]use{
		compute:  {entry(7, notAvailable), entry(8, 4)},
		graphics: {entry(7, 10), entry(8, notAvailable)},
	}}
	mustSee(t, mustOpen(t, &fakeDriver{gpus: []*fakeDevice{gpu}}), "",
		GPU{Total: 100, Instance: whole, Processes: []Process{{7, 10}, {8, 4}}})
}

func TestFiguresThatMakeNoSenseAreNotTold(t *testing.T) {
	t.Parallel()
	lists := map[list][]use{compute: {entry(0, 1), entry(math.MaxUint32, 1), entry(7, 101), entry(8, 1<<63)}}
	gpus := []*fakeDevice{{used: 101, total: 100}, {used: 1, total: 1 << 60}, {used: 1, total: 100, lists: lists}}
	bare := func(index int) GPU {
		g := GPU{Index: index, Instance: whole}.unread()
		g.Processes = []Process{}
		return g
	}
	want := "GPU 0: memory: the driver's figures make no sense; GPU 1: memory: the driver's figures make no sense; " +
		"GPU 2: the memory of some processes is not told"
	mustSee(t, mustOpen(t, &fakeDriver{gpus: gpus}), want, bare(0), bare(1),
		GPU{2, whole, "", "", 1, 100, []Process{{7, growth.Unknown}, {8, growth.Unknown}}})
}

func TestWhatIsReadIsBounded(t *testing.T) {
	t.Parallel()
	var uses []use
	for pid := range uint32(maxProcesses + 100) {
		uses = append(uses, entry(pid+1, uint64(pid+1)))
	}
	crowded := &fakeDevice{total: 1 << 30, lists: map[list][]use{compute: uses}}
	divided := &fakeDevice{instances: make([]*fakeDevice, maxInstances+5)}
	for i := range divided.instances {
		divided.instances[i] = &fakeDevice{}
	}
	gpus := []*fakeDevice{crowded, divided}
	for len(gpus) < maxGPUs+3 {
		gpus = append(gpus, &fakeDevice{})
	}
	r := mustOpen(t, &fakeDriver{gpus: gpus}).Read()
	if want := maxGPUs - 1 + maxInstances; len(r.GPUs) != want {
		t.Errorf("%d GPUs, want %d", len(r.GPUs), want)
	}
	kept := r.GPUs[0].Processes
	if len(kept) != maxProcesses || kept[0] != (Process{101, 101}) {
		t.Errorf("%d processes from %v, want %d, those with the most memory", len(kept), kept[0], maxProcesses)
	}
	for _, part := range []string{"first 64 GPUs", "first 8 MIG devices", "4096 processes"} {
		if !strings.Contains(r.Reason, part) {
			t.Errorf("%q does not say %q", r.Reason, part)
		}
	}
}

func TestReasonsAreBoundedToo(t *testing.T) {
	t.Parallel()
	var gpus []*fakeDevice
	for range maxGPUs {
		gpus = append(gpus, &fakeDevice{handleError: errLost})
	}
	r := mustOpen(t, &fakeDriver{gpus: gpus}).Read()
	if n := strings.Count(r.Reason, "; "); n != maxReasons || !strings.HasSuffix(r.Reason, "; and more") {
		t.Errorf("%q", r.Reason)
	}
}

func TestAGPUWhoseInstancesCannotBeReadStandsForThem(t *testing.T) {
	t.Parallel()
	gpu := &fakeDevice{used: 4, total: 9, instances: []*fakeDevice{}, slotsError: ErrNoPermission, lists: map[list][]use{compute: {entry(7, 1)}}}
	mustSee(t, mustOpen(t, &fakeDriver{gpus: []*fakeDevice{gpu}}), "GPU 0: MIG devices: no permission (run as root on the host)",
		GPU{0, whole, "", "", 4, 9, []Process{{7, 1}}})
}

func TestADriverThatGoesAmidAReadingIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, gone := range []error{errGone, ErrMismatch} {
		gpu := &fakeDevice{id: "GPU-a", used: 4, total: 9}
		d := &fakeDriver{gpus: []*fakeDevice{gpu}}
		m := mustOpen(t, d)
		full := GPU{0, whole, "GPU-a", "", 4, 9, []Process{}}
		mustSee(t, m, "", full)
		gpu.memoryError = gone
		mustSee(t, m, "read NVML: "+gone.Error(), full.unread())
		gpu.memoryError = nil
		for range restartEvery - 1 {
			mustSee(t, m, "read NVML: "+gone.Error(), full.unread())
		}
		mustSee(t, m, "", full)
		if d.starts != 2 || d.stops != 1 {
			t.Errorf("%d starts and %d stops, want 2 and 1", d.starts, d.stops)
		}
	}
}

func TestADriverThatDoesNotComeBackIsTriedNowAndThen(t *testing.T) {
	t.Parallel()
	d := &fakeDriver{counts: errors.New("nothing works")}
	m := mustOpen(t, d)
	mustSee(t, m, "read NVML: count the GPUs: nothing works")
	d.startError = fmt.Errorf("%w: still", ErrNoPermission)
	for range 3 * restartEvery {
		m.Read()
	}
	if d.starts != 4 {
		t.Errorf("%d starts, want 4", d.starts)
	}
	if r := m.Read(); !strings.Contains(r.Reason, "no permission: still") || !strings.Contains(r.Reason, "run as root") {
		t.Errorf("%q", r.Reason)
	}
}

func TestAPanicOfTheBindingIsAReason(t *testing.T) {
	t.Parallel()
	d := &fakeDriver{entered: func() { panic("index out of range") }}
	mustSee(t, mustOpen(t, d), "read NVML: the driver's answer makes no sense: index out of range")
}

func TestADriverWithoutAVersionIsRead(t *testing.T) {
	t.Parallel()
	if r := mustOpen(t, &fakeDriver{versionError: errNoCall}).Read(); r.Driver != "unknown" || r.Reason != "" {
		t.Errorf("%+v", r)
	}
}
