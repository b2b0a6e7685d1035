package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// An allocator other than glibc's, as Debian packages it: libraries to link with or to preload.
type allocator struct {
	name, define, link, library string
	static                      string // to link with instead; empty: there is none
}

var allocators = []allocator{
	{"jemalloc", "-DJEMALLOC", "-ljemalloc", "libjemalloc.so.2", "-l:libjemalloc.a"},
	{"tcmalloc", "-DTCMALLOC", "-ltcmalloc_minimal", "libtcmalloc_minimal.so.4", "-l:libtcmalloc_minimal.a"},
	{"mimalloc", "-DMIMALLOC", "-lmimalloc", "libmimalloc.so.2", ""},
}

func TestEveryFunctionOfAnAllocatorIsCountedOnce(t *testing.T) {
	t.Parallel()
	programs := map[string][]string{
		"glibc":       {"allocators.c"},
		"musl":        {"allocators.c", musl},
		"musl static": {"allocators.c", musl, "-static"},
		"static":      {"operators.cc", "-static"},
	}
	for _, a := range allocators {
		programs[a.name] = []string{"allocators.c", a.define, a.link}
		if a.static != "" {
			programs[a.name+" linked in"] = []string{"allocators.c", a.define, a.static, "-lstdc++", "-lm", "-pthread"}
			programs[a.name+" linked in, operators"] = []string{"operators.cc", a.static, "-lm", "-pthread"}
		}
	}
	for name, build := range programs {
		t.Run(name, func(t *testing.T) {
			mustCountAllocators(t, exec.Command(buildAllocators(t, build[0], build[1:]...)), tracer.Options{})
		})
	}
}

func TestEveryFunctionIsCountedOnceWithAPreloadedAllocator(t *testing.T) {
	t.Parallel()
	for _, a := range allocators {
		for _, source := range []string{"allocators.c", "operators.cc"} {
			t.Run(a.name+" "+source, func(t *testing.T) {
				command := exec.Command(buildAllocators(t, source))
				command.Env = append(os.Environ(), "LD_PRELOAD="+a.library)
				mustCountAllocators(t, command, tracer.Options{})
			})
		}
	}
}

func TestAnExceptionOfAnOperatorIsCaughtUnderAllProbes(t *testing.T) {
	t.Parallel()
	program := buildAllocators(t, "operators.cc")
	for _, library := range []string{"", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"} { // mimalloc ends the process itself
		for _, mode := range modes {
			t.Run(library+" "+mode.String(), func(t *testing.T) {
				command := exec.Command(program, "throw")
				command.Env = append(os.Environ(), "LD_PRELOAD="+library)
				mustCountAllocators(t, command, tracer.Options{Mode: mode})
			})
		}
	}
}

// musl is gcc for programs with that C library.
const musl = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"

// buildAllocators keeps the compiler from leaving calls of the allocator out.
func buildAllocators(t *testing.T, source string, flags ...string) string {
	t.Helper()
	return tracertest.Build(t, source, append([]string{"-fno-builtin"}, flags...)...)
}

// mustCountAllocators runs a program made of allocators.h and compares.
func mustCountAllocators(t *testing.T, command *exec.Cmd, options tracer.Options) {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	options.PID, options.Interval = target.PID(), 1
	s := open(t, options)
	target.Say("go")
	truth := target.Await("done")
	if len(truth) < 10 {
		t.Fatalf("the target tells %q: the test is wrong", truth)
	}
	calls := truth[len(truth)-1]
	got, allocated := heldByCases(snapshot(t, s))
	mustHold(t, got, truth[:len(truth)-1])
	events := mustLoseNoCall(t, s)
	if said := fmt.Sprintf("calls %d %d", events.Allocations, events.Frees); said != calls || events.FreesUntracked != 0 {
		t.Errorf("%s, and %d frees untracked; the target made %s", said, events.FreesUntracked, calls)
	}
	if seen := fmt.Sprintf("calls %.0f", allocated+float64(events.Failed)); !strings.HasPrefix(calls, seen+" ") {
		t.Errorf("%s are in the profile or have failed; the target made %s", seen, calls)
	}
}

// mustLoseNoCall fails if anything was lost but frames above the program's own: Debian's musl has no unwind information.
func mustLoseNoCall(t *testing.T, s *tracer.Session) tracer.Events {
	t.Helper()
	events, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		if !strings.Contains(l.Reason, "without unwind information") {
			t.Errorf("lost: %d %s", l.Count, l.Reason)
		}
	}
	return events
}

// heldByCases is what the functions case_... hold, whatever lies between them and the probe, and how many objects all
// stacks have allocated.
func heldByCases(taken *growth.Snapshot) (held map[string][2]int64, allocated float64) {
	held = make(map[string][2]int64)
	for _, h := range taken.Holdings {
		if h.Kind != growth.KindHeap {
			continue
		}
		allocated += h.AllocObjects
		for _, f := range h.Stack.Frames {
			if strings.HasPrefix(f.Function, "case_") && h.InuseObjects > 0 {
				sum := held[f.Function]
				held[f.Function] = [2]int64{sum[0] + int64(h.InuseObjects), sum[1] + h.InuseBytes}
				break
			}
		}
	}
	return held, allocated
}
