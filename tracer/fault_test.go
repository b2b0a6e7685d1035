package tracer_test

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelFaults compares sampled page faults with the kernel's own count, on every kernel.
func TestKernelFaults(t *testing.T) {
	t.Run("faults have their pages and stacks", testKernelFaultsFaultsPagesStacks)
	t.Run("copies of shared pages are marked", testKernelFaultsCopiesSharedPages)
}

// TestFaults samples page faults of traced processes alone.
func TestFaults(t *testing.T) {
	t.Run("other processes are left out", testFaultsOtherProcessesLeft)
	t.Run("faults end with their links", testFaultsFaultsEndLinks)
	t.Run("faults are forgotten by page and with their process", testFaultsFaultsForgottenPage)
	t.Run("faults beyond the map are a loss", testFaultsFaultsBeyondMap)
	t.Run("sampled faults represent all", testFaultsSampledFaultsRepresent)
	t.Run("missing privileges are named", testFaultsMissingPrivilegesNamed)
	t.Run("every CPU", testFaultsCPU)
}

const everyFault = 1 // interval at which every page fault is taken

var faultPage = process.PageSize

// faultTruth is the report of faults.c on the pages that one of its functions has touched.
type faultTruth struct {
	function      string
	start         uint64
	pages, faults int
	copied        bool
}

func reportedFaults(t testing.TB, lines []string) (truth []faultTruth) {
	t.Helper()
	for _, line := range lines {
		var f faultTruth
		var copied int
		scan(t, line, "faults %s %d %d %d %d", &f.function, &f.start, &f.pages, &f.faults, &copied)
		f.copied = copied == 1
		truth = append(truth, f)
	}
	return truth
}

// startFaults starts testdata/faults.c with a file of its own. child is the PID of its child.
func startFaults(t testing.TB) (target *tracertest.Target, program string, child int) {
	t.Helper()
	program = tracertest.Build(t, "faults.c", "-fomit-frame-pointer")
	target = tracertest.Start(t, program, pagedFile(t))
	return target, program, awaitChild(t, target, "ready")
}

// takeFaults attaches the source until the test ends, or until detach is called.
func takeFaults(t testing.TB, s *tracer.Session, interval uint64) (detach func()) {
	t.Helper()
	status, links := source.AttachFaults(tracer.Kernel(s), interval)
	if !status.Attached {
		t.Fatalf("source fault is not attached: %s", status.Reason)
	}

	detach = func() {
		must(t, probe.Close(links))
		links = nil
	}
	t.Cleanup(detach)
	return detach
}

// traceFaults starts testdata/faults.c and takes its faults, beside its mappings alone.
func traceFaults(t testing.TB, interval uint64) (target *tracertest.Target, program string,
	s *tracer.Session,
) {
	t.Helper()
	target, program, _ = startFaults(t)
	s = open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, interval)
	return target, program, s
}

func faultsOf(t testing.TB, s *tracer.Session, pid int) []source.Fault {
	t.Helper()
	faults := tracertest.Must(source.ReadFaults(tracer.Kernel(s)))(t)
	return faults[uint32(pid)]
}

func sampledFaults(t testing.TB, s *tracer.Session) int {
	t.Helper()
	return int(counted(t, s, bpf.CountFaults))
}

// mustFault compares the faults one by one with the pages that the target has touched. Faults of
// its code, its stack and the data of its libraries are left out.
func mustFault(t *testing.T, s *tracer.Session, program string, faults []source.Fault,
	truth []faultTruth,
) {
	t.Helper()
	if !slices.IsSortedFunc(faults,
		func(a, b source.Fault) int { return cmp.Compare(a.Page, b.Page) }) {
		t.Error("faults are not in the order of pages")
	}
	found := make(map[string]int)
	for _, f := range faults {
		want := touchedAt(truth, f.Page)
		if want == nil {
			continue
		}
		found[want.function]++
		stack := stackByID(s, f.Stack)
		names := functions(stack)
		if got := caller(stack, program); got != want.function || stack.Truncated != "" ||
			names[len(names)-1] != "_start" {
			t.Errorf("the fault at %#x is that of %q, which %q cuts, want %s", f.Page, names,
				stack.Truncated, want.function)
		}
		if f.Copied != want.copied || f.Weight != 1 || f.Page%faultPage != 0 {
			t.Errorf("%s: %+v, want that of one page, copied: %t", want.function, f, want.copied)
		}
	}
	for _, want := range truth {
		if n := found[want.function]; n != want.faults {
			t.Errorf("%d faults of %s, want %d", n, want.function, want.faults)
		}
	}
}

// stackByID returns the known stack of an ID once all events have been read.
func stackByID(s *tracer.Session, id uint64) *growth.Stack {
	tracer.Flush(s)
	return tracer.Targets(s)[0].Stacks.Get(id)
}

// touchedAt returns the last to touch a page.
func touchedAt(truth []faultTruth, page uint64) (by *faultTruth) {
	for i := range truth {
		if f := &truth[i]; page-f.start < uint64(f.pages)*faultPage {
			by = f
		}
	}
	return by
}

func testKernelFaultsFaultsPagesStacks(t *testing.T) {
	target, program, s := traceFaults(t, everyFault)
	counted, taken := faultsIn(t, target.PID()), sampledFaults(t, s)
	truth := reportedFaults(t, target.Do("go"))
	counted, taken = faultsIn(t, target.PID())-counted, sampledFaults(t, s)-taken
	if taken != counted {
		t.Errorf("%d faults taken, and the kernel counts %d", taken, counted)
	}

	for i := range truth {
		switch f := &truth[i]; f.function {
		case "read_file", "touch_huge": // several pages by a fault, where the kernel can
		case "read_zeros":
			f.faults -= 10 // which write_over_zeros has replaced
		default:
			if f.faults != f.pages {
				t.Errorf("the kernel counts %d faults of %s in %d pages: the test is wrong",
					f.faults, f.function, f.pages)
			}
		}
	}

	if len(truth) != 8 {
		t.Fatalf("the target reports %+v: the test is wrong", truth)
	}

	mustFault(t, s, program, faultsOf(t, s, target.PID()), truth)
	mustLoseNothing(t, s)
}

func testKernelFaultsCopiesSharedPages(t *testing.T) {
	target, program, child := startFaults(t)
	s := open(t, tracer.Options{PID: child, Sources: []string{"mapping"}})

	takeFaults(t, s, everyFault)
	truth := reportedFaults(t, target.Do("child"))
	if len(truth) != 2 || !truth[0].copied || truth[0].faults != truth[0].pages || truth[1].copied {
		t.Fatalf("the target reports %+v: the test is wrong", truth)
	}

	mustFault(t, s, program, faultsOf(t, s, child), truth)
	mustLoseNothing(t, s)
}

func testFaultsOtherProcessesLeft(t *testing.T) {
	traced, _, child := startFaults(t)
	other, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: traced.PID(), Sources: []string{"mapping"}})

	takeFaults(t, s, everyFault)
	order(other, "go")
	before, counted := sampledFaults(t, s), faultsIn(t, traced.PID())
	order(traced, "child")
	for _, pid := range []int{other.PID(), child} {
		if n := len(faultsOf(t, s, pid)); n > 0 {
			t.Errorf("%d faults of pid %d, which is not traced", n, pid)
		}
	}

	// A page may fault twice: the kernel's count has both.
	if own := faultsIn(t, traced.PID()) - counted; sampledFaults(t, s)-before > own {
		t.Errorf("%d faults sampled, want those of the traced process: %d",
			sampledFaults(t, s)-before, own)
	}
}

// faultsIn is how many page faults a process has had, by the kernel's count.
func faultsIn(t testing.TB, pid int) int {
	t.Helper()
	stat := tracertest.Must(process.ReadStat(pid))(t)
	return int(stat.MinorFaults + stat.MajorFaults)
}

func testFaultsFaultsEndLinks(t *testing.T) {
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})

	detach := takeFaults(t, s, everyFault)
	order(target, "many 100")
	detach()
	target.Do("many 1") // a fault may have been under way, after the target's report
	before := sampledFaults(t, s)
	order(target, "many 100")
	if after := sampledFaults(t, s); before < 100 || after != before {
		t.Errorf("%d faults before detaching and %d more after", before, after-before)
	}
}

func testFaultsFaultsForgottenPage(t *testing.T) {
	target, _, child := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})

	mustAttach(t, s, child)
	takeFaults(t, s, everyFault)
	many := reportedFaults(t, target.Do("many 100"))[0]
	order(target, "child")
	before := len(faultsOf(t, s, target.PID()))
	var pages []uint64
	for i := range 60 {
		pages = append(pages, many.start+uint64(i)*faultPage)
	}

	source.ForgetFaults(tracer.Kernel(s), uint32(child), pages)
	source.ForgetFaults(tracer.Kernel(s), uint32(target.PID()), append(pages, 4095))
	left := faultsOf(t, s, target.PID())
	for _, f := range left {
		if f.Page-many.start < 60*faultPage {
			t.Errorf("the fault at %#x is still there", f.Page)
		}
	}
	if len(left) != before-60 {
		t.Errorf("%d faults of %d left after 60 were forgotten", len(left), before)
	}

	mustDetach(t, s, target.PID())
	if n := len(faultsOf(t, s, target.PID())); n > 0 {
		t.Errorf("%d faults left of a process that has been given up", n)
	}
	if n := len(faultsOf(t, s, child)); n < 48 {
		t.Errorf("%d faults left of its child", n)
	}
}

func testFaultsFaultsBeyondMap(t *testing.T) {
	const beyond = 500
	target, _, s := traceFaults(t, everyFault)
	target.Do(fmt.Sprint("many ", kernel.MaxFaults+beyond))
	kept, taken := len(faultsOf(t, s, target.PID())), sampledFaults(t, s)
	if kept != kernel.MaxFaults {
		t.Errorf("%d faults kept, want %d", kept, kernel.MaxFaults)
	}

	// A page that faults a second time, as for a write after a read, takes no second place.
	_, losses := counters(t, s)
	if len(losses) != 1 || losses[0].Kind != growth.LossFaultsFull ||
		int(losses[0].Count) < beyond || int(losses[0].Count) > taken-kept {
		t.Errorf("lost %+v, want %d to %d page faults", losses, beyond, taken-kept)
	}
}

// One fault in N is sampled on each CPU. Of n faults without others in between, n/N are sampled,
// rounded up or down on each CPU. Others in between make it a random choice at most, no worse than
// n/N Poisson samples: within 5 standard deviations, but for 6 of 10 million.
func testFaultsSampledFaultsRepresent(t *testing.T) {
	const pages, interval = 32_768, 64 << 10
	target, program, s := traceFaults(t, interval)
	truth := reportedFaults(t, target.Do(fmt.Sprint("many ", pages)))[0]
	period := float64(source.FaultPeriod(interval))
	stand := 0.0
	for _, f := range faultsOf(t, s, target.PID()) {
		if f.Weight != period {
			t.Fatalf("%+v represents %v faults, want %v", f, f.Weight, period)
		}

		if f.Page-truth.start >= uint64(truth.pages)*faultPage {
			continue
		}
		stand += f.Weight
		if name := caller(stackByID(s, f.Stack), program); name != truth.function {
			t.Errorf("the fault at %#x is that of %s", f.Page, name)
		}
	}
	if bound := 5 * math.Sqrt(pages*period); truth.faults != pages || math.Abs(stand-pages) > bound {
		t.Errorf("faults represent %v, want %d (%d by the kernel's count), give or take %.0f",
			stand, pages, truth.faults, bound)
	}
	mustLoseNothing(t, s)
}

// Without privileges for a moment, where the kernel then refuses.
func testFaultsMissingPrivilegesNamed(t *testing.T) {
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	_, err := tracer.Kernel(s).Program(bpf.ProgOnFault)
	must(t, err)

	mustBeRefused := true
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err == nil {
		mustBeRefused = strings.Trim(string(level), "\n") > "0"
	}

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore := dropCapabilities(t)
	status, links := source.AttachFaults(tracer.Kernel(s), everyFault)
	restore()
	defer probe.Close(links)
	if status.Attached == mustBeRefused || mustBeRefused &&
		!strings.Contains(status.Reason, "grant CAP_PERFMON") {
		t.Errorf("without capabilities: %+v", status)
	}
}

// dropCapabilities takes the effective ones from this thread.
func dropCapabilities(t *testing.T) (restore func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, none [2]unix.CapUserData
	must(t, unix.Capget(&header, &had[0]))

	for i := range had {
		none[i].Permitted = had[i].Permitted
	}
	must(t, unix.Capset(&header, &none[0]))

	return func() {
		must(t, unix.Capset(&header, &had[0]))
	}
}

func testFaultsCPU(t *testing.T) {
	const pages = 10
	target, _, s := traceFaults(t, everyFault)
	var all unix.CPUSet
	must(t, unix.SchedGetaffinity(target.PID(), &all))

	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		must(t, unix.SchedSetaffinity(target.PID(), &one))

		before := sampledFaults(t, s)
		target.Do(fmt.Sprint("many ", pages))
		if n := sampledFaults(t, s) - before; n < pages {
			t.Errorf("%d faults on CPU %d, want %d or more", n, cpu, pages)
		}
	}
}
