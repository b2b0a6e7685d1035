package tracer_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestStacks follows native stacks through code that is loaded while it is traced.
func TestStacks(t *testing.T) {
	t.Run("library that was deleted after loading", testStacksLibraryDeletedLoading)
	t.Run("library without unwind information", testStacksLibraryWithoutUnwind)
	t.Run("more stacks than the ring buffer holds", testStacksMoreStacksRing)
}

// host is testdata/plugins.c under trace.
type host struct {
	*tracertest.Target
	session *tracer.Session
	t       *testing.T
}

func startHost(t *testing.T) host {
	t.Helper()
	target := start(t, tracertest.Build(t, "plugins.c", "-fomit-frame-pointer", "-ldl"))
	return host{target, open(t, tracer.Options{PID: target.PID(), Interval: 1}), t}
}

// load makes the program load a copy of a library of its own name.
func (h host) load(library, name string) (path string) {
	h.t.Helper()
	path = copied(h.t, library, name)
	h.Do("load " + path)
	return path
}

// buildPlugin builds a library whose allocations are of that size.
func buildPlugin(t testing.TB, size int, flags ...string) string {
	t.Helper()
	flags = append([]string{
		"-shared", "-fPIC", "-fomit-frame-pointer", fmt.Sprint("-DSIZE=", size),
	}, flags...)
	return tracertest.Build(t, "plugin.c", flags...)
}

func (h host) call(times int) {
	h.Do(fmt.Sprintf("call %d", times))
}

// throughPlugin counts the library's allocations by their size: allocations with complete stacks
// through both of its functions, and all.
func (h host) throughPlugin(size int64) (whole, all int) {
	h.t.Helper()
	for _, held := range snapshot(h.t, h.session).Holdings {
		if held.Kind != growth.KindHeap || held.InuseObjects == 0 ||
			held.InuseBytes != size*int64(held.InuseObjects) {
			continue
		}

		all += int(held.InuseObjects)
		if names := functions(held.Stack); held.Stack.Truncated == "" &&
			slices.Contains(names, "plugin_inner") &&
			slices.Contains(names, "plugin_outer") && slices.Contains(names, "main") {
			whole += int(held.InuseObjects)
		}
	}
	return whole, all
}

// mustFollow calls the library until the first stack through it is complete. All from then on must
// be, and those before are counted as truncated.
func (h host) mustFollow(size int64) {
	h.t.Helper()
	const attempts, calls = 500, 100
	early := 0
	for whole := 0; whole == 0; early++ {
		if early == attempts {
			h.t.Fatal("no stack through the library is whole")
		}

		h.call(1)
		awaitTables(h.session)
		whole, _ = h.throughPlugin(size)
	}

	before, allBefore := h.throughPlugin(size)
	h.call(calls)
	after, all := h.throughPlugin(size)
	if after-before != calls || all-allBefore != calls {
		h.t.Errorf("%d of %d stacks are whole, want %d", after-before, all-allBefore, calls)
	}
	if _, cut := cutStacks(h.t, h.session); int(cut) != allBefore-before {
		h.t.Errorf("%d stacks are counted as truncated, but %d are", cut, allBefore-before)
	}
}

func testStacksLibraryDeletedLoading(t *testing.T) {
	h := startHost(t)
	path := h.load(buildPlugin(t, 112), "gone.so")
	must(t, os.Remove(path))
	h.mustFollow(112)
}

func testStacksLibraryWithoutUnwind(t *testing.T) {
	const size = 115
	for flag, wanted := range map[string]func(*growth.Stack) bool{
		"-fno-omit-frame-pointer": func(s *growth.Stack) bool {
			return s.Truncated == "" && len(s.Frames) > 2 &&
				strings.HasSuffix(functions(s)[2], "[by frame pointer]")
		},
		"-fomit-frame-pointer": func(s *growth.Stack) bool {
			return s.Truncated != "" && functions(s)[1] == "plugin_inner"
		},
	} {
		t.Run(flag, func(t *testing.T) {
			h := startHost(t)
			library := buildPlugin(t, size, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-g0",
				flag)
			h.load(library, "bare.so")
			h.mustEventually(size, wanted)
		})
	}
}

// mustEventually calls the libraries until a stack of such an allocation is as wanted.
func (h host) mustEventually(size int64, wanted func(*growth.Stack) bool) {
	h.t.Helper()
	const attempts = 100
	var last *growth.Stack
	for range attempts {
		h.call(1)
		awaitTables(h.session)
		for _, held := range snapshot(h.t, h.session).Holdings {
			if held.InuseObjects > 0 && held.InuseBytes == size*int64(held.InuseObjects) &&
				len(held.Stack.Frames) > 1 {
				if last = held.Stack; wanted(last) {
					return
				}
			}
		}
	}
	h.t.Errorf("no stack is as wanted; the last is %q, truncated: %q", functions(last), last.Truncated)
}

// While the symbols of a large library are read, a program that has just started calls from
// thousands of places.
func testStacksMoreStacksRing(t *testing.T) {
	const stacks = 1 << 14
	target := start(t, tracertest.Build(t, "stacks.c", "-fno-omit-frame-pointer",
		"-DDEPTH=14", "-DPAUSE_US=50"))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	awaitTables(s)

	table := tracer.Targets(s)[0].Stacks
	table.Mu.Lock() // stacks cannot be named meanwhile
	order(target, "go")
	table.Mu.Unlock()

	seen := 0
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) >= 16 && h.Stack.Truncated == "" && h.InuseObjects == 1 {
			seen++
		}
	}
	if seen != stacks {
		t.Errorf("%d distinct stacks, want %d", seen, stacks)
	}
	mustLoseNothing(t, s)
}

// cutStacks returns how many stacks were taken, and how many of them are truncated.
func cutStacks(t *testing.T, s *tracer.Session) (all, cut uint64) {
	t.Helper()
	events, losses := counters(t, s)
	for _, l := range losses {
		if l.Kind == growth.LossTruncatedStacks || l.Kind == growth.LossPythonFrames {
			cut += l.Count
		}
	}
	return events.Stacks, cut
}
