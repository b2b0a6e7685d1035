package tracer_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	faultPage = 4096
	everyOne  = 1 // interval at which every page fault is taken
)

// faulted is what faults.c says that one of its functions has touched.
type faulted struct {
	function      string
	start         uint64
	pages, faults int
	copied        bool
}

func toldFaults(t testing.TB, lines []string) (truth []faulted) {
	t.Helper()
	for _, line := range lines {
		var f faulted
		var copied int
		if _, err := fmt.Sscanf(line, "faults %s %d %d %d %d", &f.function, &f.start, &f.pages, &f.faults, &copied); err != nil {
			t.Fatalf("target says %q: %v", line, err)
		}
		f.copied = copied == 1
		truth = append(truth, f)
	}
	return truth
}

// startFaults starts testdata/faults.c with a file of its own, and tells the PID of its child.
func startFaults(t testing.TB) (target *tracertest.Target, program string, child int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 16 { // one at a time, which mappings.c explains
		if _, err := file.Write(make([]byte, faultPage)); err != nil {
			t.Fatal(err)
		}
	}
	program = tracertest.Build(t, "faults.c", "-fomit-frame-pointer")
	target = tracertest.Start(t, program, path)
	if _, err := fmt.Sscanf(strings.Join(target.Await("ready"), "\n"), "child %d", &child); err != nil {
		t.Fatal(err)
	}
	return target, program, child
}

// takeFaults attaches the source until the test ends, or until detach is called.
func takeFaults(t testing.TB, s *tracer.Session, interval uint64) (detach func()) {
	t.Helper()
	source, links := s.AttachFaults(interval)
	if !source.Attached {
		t.Fatalf("source fault is not attached: %s", source.Reason)
	}
	detach = func() {
		if err := probe.Close(links); err != nil {
			t.Errorf("detach: %v", err)
		}
		links = nil
	}
	t.Cleanup(detach)
	return detach
}

func faultsOf(t testing.TB, s *tracer.Session, pid int) []tracer.Fault {
	t.Helper()
	faults, err := s.Faults()
	if err != nil {
		t.Fatal(err)
	}
	return faults[pid]
}

func sampledFaults(t testing.TB, s *tracer.Session) int {
	t.Helper()
	n, err := s.SampledFaults()
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// faultsSoFar is what the kernel counts of a process: minor and major faults.
func faultsSoFar(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(text), ") ")
	var skip string
	var minor, children, major int
	if _, err := fmt.Sscan(fields, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &minor, &children, &major); err != nil {
		t.Fatal(err)
	}
	return minor + major
}

// mustFault compares the faults in what the target says it has touched, one by one. Elsewhere there are its code, its stack,
// and the data of its libraries.
func mustFault(t *testing.T, s *tracer.Session, program string, faults []tracer.Fault, truth []faulted) {
	t.Helper()
	if !slices.IsSortedFunc(faults, func(a, b tracer.Fault) int { return cmp.Compare(a.Page, b.Page) }) {
		t.Error("faults are not in the order of pages")
	}
	found := make(map[string]int)
	for _, f := range faults {
		want := touchedAt(truth, f.Page)
		if want == nil {
			continue
		}
		found[want.function]++
		stack := s.Stack(f.Stack)
		names := functions(stack)
		if got := caller(stack, program); got != want.function || stack.Truncated != "" || names[len(names)-1] != "_start" {
			t.Errorf("the fault at %#x is that of %q, which %q cuts, want %s", f.Page, names, stack.Truncated, want.function)
		}
		if f.Copied != want.copied || f.Stands != 1 || f.Page%faultPage != 0 {
			t.Errorf("%s: %+v, want that of one page, copied: %t", want.function, f, want.copied)
		}
	}
	for _, want := range truth {
		if n := found[want.function]; n != want.faults {
			t.Errorf("%d faults of %s, want %d", n, want.function, want.faults)
		}
	}
}

// touchedAt tells who was the last to touch a page.
func touchedAt(truth []faulted, page uint64) (by *faulted) {
	for i := range truth {
		if f := &truth[i]; page-f.start < uint64(f.pages)*faultPage {
			by = f
		}
	}
	return by
}

func TestKernelFaultsHaveTheirPagesAndStacks(t *testing.T) {
	target, program, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	counted, taken := faultsSoFar(t, target.PID()), sampledFaults(t, s)
	target.Say("go")
	truth := toldFaults(t, target.Await("done"))
	counted, taken = faultsSoFar(t, target.PID())-counted, sampledFaults(t, s)-taken
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
				t.Errorf("the kernel counts %d faults of %s in %d pages: the test is wrong", f.faults, f.function, f.pages)
			}
		}
	}
	if len(truth) != 8 {
		t.Fatalf("the target tells %+v: the test is wrong", truth)
	}
	mustFault(t, s, program, faultsOf(t, s, target.PID()), truth)
	mustLoseNothing(t, s)
}

func TestKernelFaultsThatCopyWhatIsSharedAreTold(t *testing.T) {
	target, program, child := startFaults(t)
	s := open(t, tracer.Options{PID: child, Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	target.Say("child")
	truth := toldFaults(t, target.Await("done"))
	if len(truth) != 2 || !truth[0].copied || truth[0].faults != truth[0].pages || truth[1].copied {
		t.Fatalf("the target tells %+v: the test is wrong", truth)
	}
	mustFault(t, s, program, faultsOf(t, s, child), truth)
	mustLoseNothing(t, s)
}

func TestFaultsOfAHugePageAreOne(t *testing.T) {
	setting, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || strings.Contains(string(setting), "[never]") {
		t.Fatalf("this kernel makes no huge pages: %s %v", setting, err)
	}
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	target.Say("go")
	for _, f := range toldFaults(t, target.Await("done")) {
		if f.function != "touch_huge" {
			continue
		}
		var pages []uint64
		for _, fault := range faultsOf(t, s, target.PID()) {
			if fault.Page-f.start < uint64(f.pages)*faultPage {
				pages = append(pages, fault.Page)
			}
		}
		if len(pages) != 1 || pages[0] != f.start {
			t.Errorf("faults at %#x, want one at %#x", pages, f.start)
		}
	}
}

func TestFaultsOfOtherProcessesAreLeftOut(t *testing.T) {
	traced, _, child := startFaults(t)
	other, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: traced.PID(), Sources: []string{"mapping"}})
	takeFaults(t, s, everyOne)
	other.Say("go")
	other.Await("done")
	before := sampledFaults(t, s)
	traced.Say("child")
	traced.Await("done")
	faults, err := s.Faults()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{other.PID(), child} {
		if len(faults[pid]) > 0 {
			t.Errorf("%d faults of pid %d, which is not traced", len(faults[pid]), pid)
		}
	}
	if own := len(faults[traced.PID()]); sampledFaults(t, s)-before > own {
		t.Errorf("%d faults counted, want those of the traced process: %d", sampledFaults(t, s)-before, own)
	}
}

func TestFaultsEndWithTheirLinks(t *testing.T) {
	target, _, _ := startFaults(t)
	s := open(t, tracer.Options{PID: target.PID(), Sources: []string{"mapping"}})
	detach := takeFaults(t, s, everyOne)
	target.Say("many 100")
	target.Await("done")
	detach()
	target.Say("many 1") // a fault may have been under way, behind what the target had said
	target.Await("done")
	before := sampledFaults(t, s)
	target.Say("many 100")
	target.Await("done")
	if after := sampledFaults(t, s); before < 100 || after != before {
		t.Errorf("%d faults before detaching and %d more after", before, after-before)
	}
}
