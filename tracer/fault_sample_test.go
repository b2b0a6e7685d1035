package tracer_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

func TestFaultsAreForgottenByPageAndWithTheirProcess(t *testing.T) {
	target, _, child := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	if err := s.Attach(child); err != nil {
		t.Fatal(err)
	}
	takeFaults(t, s, everyOne)
	target.Say("many 100")
	many := toldFaults(t, target.Await("done"))[0]
	target.Say("child")
	target.Await("done")
	before := len(faultsOf(t, s, target.PID()))
	var pages []uint64
	for i := range 60 {
		pages = append(pages, many.start+uint64(i)*faultPage)
	}
	s.ForgetFaults(child, pages)
	s.ForgetFaults(target.PID(), append(pages, 4095))
	left := faultsOf(t, s, target.PID())
	for _, f := range left {
		if f.Page-many.start < 60*faultPage {
			t.Errorf("the fault at %#x is still there", f.Page)
		}
	}
	if len(left) != before-60 {
		t.Errorf("%d faults of %d left after 60 were forgotten", len(left), before)
	}
	if err := s.Detach(target.PID()); err != nil {
		t.Fatal(err)
	}
	if n := len(faultsOf(t, s, target.PID())); n > 0 {
		t.Errorf("%d faults left of a process that has been given up", n)
	}
	if n := len(faultsOf(t, s, child)); n < 48 {
		t.Errorf("%d faults left of its child", n)
	}
}

func TestMoreFaultingPagesThanAreKeptAreCounted(t *testing.T) {
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	target.Say(fmt.Sprint("many ", tracer.MaxFaults+500))
	target.Await("done")
	kept, taken := len(faultsOf(t, s, target.PID())), sampledFaults(t, s)
	if kept != tracer.MaxFaults {
		t.Errorf("%d faults kept, want %d", kept, tracer.MaxFaults)
	}
	_, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 1 || !strings.HasPrefix(losses[0].Reason, "page faults not followed") || int(losses[0].Count) != taken-kept {
		t.Errorf("lost %+v, want %d page faults", losses, taken-kept)
	}
}

// One fault in N on each CPU: of n faults that nothing else comes between, n/N are sampled, rounded up or down, for each
// CPU that they are made on. What comes between makes it a random choice at most, which is no worse than n/N Poisson
// samples: within 5 standard deviations, but for 6 of 10 million.
func TestSampledFaultsStandForAll(t *testing.T) {
	const pages, interval = 32_768, 64 << 10
	target, program, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, interval)
	target.Say(fmt.Sprint("many ", pages))
	truth := toldFaults(t, target.Await("done"))[0]
	period := float64(tracer.FaultPeriod(interval))
	stand := 0.0
	for _, f := range faultsOf(t, s, target.PID()) {
		if f.Stands != period {
			t.Fatalf("%+v stands for %v faults, want %v", f, f.Stands, period)
		}
		if f.Page-truth.start >= uint64(truth.pages)*faultPage {
			continue
		}
		stand += f.Stands
		if name := caller(s.Stack(f.Stack), program); name != truth.function {
			t.Errorf("the fault at %#x is that of %s", f.Page, name)
		}
	}
	if bound := 5 * math.Sqrt(pages*period); truth.faults != pages || math.Abs(stand-pages) > bound {
		t.Errorf("faults stand for %v, want %d (%d by the kernel's count), give or take %.0f", stand, pages, truth.faults, bound)
	}
	mustLoseNothing(t, s)
}

func TestThePeriodOfFaultsIsAPrime(t *testing.T) {
	for interval, want := range map[uint64]uint64{
		0: 1, 1: 1, 4096: 1, 8192: 2, 64 << 10: 17, 512 << 10: 131, kernel.MaxInterval: 262_147,
	} {
		if got := tracer.FaultPeriod(interval); got != want {
			t.Errorf("at %d bytes: one in %d, want %d", interval, got, want)
		}
	}
}

// Without privileges for a moment, where the kernel then refuses.
func TestFaultsThatCannotBeTakenSayWhatToDo(t *testing.T) {
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	mustBeRefused := true
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err == nil {
		mustBeRefused = strings.Trim(string(level), "\n") > "0"
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore := dropCapabilities(t)
	source, links := s.AttachFaults(everyOne)
	restore()
	defer probe.Close(links)
	if source.Attached == mustBeRefused || mustBeRefused && !strings.Contains(source.Reason, "grant CAP_PERFMON") {
		t.Errorf("without capabilities: %+v", source)
	}
}

// dropCapabilities takes the effective ones from this thread.
func dropCapabilities(t *testing.T) (restore func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, none [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
	for i := range had {
		none[i].Permitted = had[i].Permitted
	}
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Capset(&header, &had[0]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFaultsAreSeenOnEveryCPU(t *testing.T) {
	const pages = 10
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(target.PID(), &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(target.PID(), &one); err != nil {
			t.Fatal(err)
		}
		before := sampledFaults(t, s)
		target.Say(fmt.Sprint("many ", pages))
		target.Await("done")
		if n := sampledFaults(t, s) - before; n < pages {
			t.Errorf("%d faults on CPU %d, want %d or more", n, cpu, pages)
		}
	}
}
