package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/tree"
)

// TestTree traces several processes of a tree in one session.
func TestTree(t *testing.T) {
	t.Run("processes of one program are counted apart", testTreeProcessesOneProgram)
	t.Run("births add up in their bins", testTreeBirthsAddUp)
	t.Run("too many processes are refused", testTreeTooManyProcesses)
	t.Run("process that executes itself all the time", testTreeProcessExecutesItself)
	t.Run("process that forks all the time", testTreeProcessForksTime)
	t.Run("process that renames itself all the time", testTreeProcessRenamesItself)
	t.Run("tree of depth one hundred", testTreeTreeDepthOne)
	t.Run("process that exits at once", testTreeProcessExitsOnce)
}

// mapped is the memory of a function's mappings that have been touched.
func mapped(snapshot *growth.Snapshot, function string) (bytes int64) {
	for _, h := range snapshot.Holdings {
		if h.Kind != growth.KindHeap && slices.Contains(functions(h.Stack), function) {
			bytes += h.InuseBytes
		}
	}
	return bytes
}

func testTreeProcessesOneProgram(t *testing.T) {
	j := startJob(t, 5)
	s := traceJob(t, j, 1)
	for round := range 3 { // in turns
		for i, r := range j.ranks {
			r.order("leak %d %d", 100*(i+1), 64+16*i)
			r.order("hold %d 200", 10*(round+1))
			r.order("drop")
		}
	}

	var alive []int
	for i, r := range j.ranks {
		r.order("hold %d 48", 7+i)
		r.order("map %d 8192 4096", i+1)
		alive = append(alive, r.pid)
	}

	got := snapshot(t, s)
	for i, r := range j.ranks {
		part := got.Of(r.pid)
		mustHold(t, held(part), []string{
			fmt.Sprint("leak_here ", 300*(i+1), 300*(i+1)*(64+16*i)), fmt.Sprint("hold_here ", 7+i,
				(7+i)*48),
		})
		if bytes, want := mapped(part, "map_here"), int64(4096*(i+1)); bytes != want {
			t.Errorf("map_here of rank %d holds %d bytes, want %d", i, bytes, want)
		}
	}
	if slices.Sort(got.Alive); !slices.Equal(got.Alive, slices.Sorted(slices.Values(alive))) {
		t.Errorf("alive are %v, want %v", got.Alive, alive)
	}
	mustLoseNothing(t, s)
}

func testTreeBirthsAddUp(t *testing.T) {
	j := startJob(t, 2)
	s := traceJob(t, j, 1)

	var moments []time.Duration
	for round := range 4 {
		for i, r := range j.ranks {
			r.order("leak %d 100", 10*(round+1)+i)
		}
		if round < 3 {
			moments = append(moments, snapshot(t, s).Elapsed)
		}
	}

	last := tracertest.Must(s.Snapshot(moments...))(t)
	if want := append(slices.Clip(moments), last.Elapsed); !slices.Equal(last.Bins, want) {
		t.Errorf("bins end at %v, want %v", last.Bins, want)
	}

	for i, r := range j.ranks {
		var births [4]float64
		for _, h := range last.Of(r.pid).Holdings {
			if h.Kind == growth.KindHeap && functions(h.Stack)[1] == "leak_here" {
				for _, b := range h.Births {
					births[b.Bin] += b.InuseBytes
				}
			}
		}

		for round, bytes := range births {
			if want := float64(100 * (10*(round+1) + i)); bytes != want {
				t.Errorf("rank %d, bin %d: %.0f bytes, want %.0f", i, round, bytes, want)
			}
		}
	}
}

func testTreeTooManyProcesses(t *testing.T) {
	const room = 64
	s := open(t, tracer.Options{PID: startSteps(t).PID(), Interval: 1})

	last := startSteps(t)
	var targets []*tracertest.Target
	for range room - 1 {
		targets = append(targets, startSteps(t))
		mustAttach(t, s, targets[len(targets)-1].PID())
	}

	before := settledDescriptors(t)
	if err := attach(s, last.PID()); err == nil ||
		!strings.Contains(err.Error(), "limit of traced processes reached (64)") {
		t.Errorf("%v", err)
	}
	if more := settledDescriptors(t) - before; more != 0 || len(entries(t, s, last.PID())) != 0 {
		t.Errorf("%d descriptors and %v are left of the one too many", more,
			entries(t, s, last.PID()))
	}

	end(t, s, targets[0])
	if err := attach(s, last.PID()); err != nil {
		t.Errorf("where one has ended: %v", err)
	}
}

// mustLeaveNothing wants no descriptors and goroutines to be left once do has returned.
func mustLeaveNothing(t testing.TB, do func()) {
	t.Helper()
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	do()
	eventually(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if more := descriptors(t) - fds; more > 0 {
		t.Errorf("%d descriptors are left", more)
	}
}

// mustTraceAndLeave opens a session on a process whose behaviour makes that fail now and then, and
// closes it once do has returned.
func mustTraceAndLeave(t testing.TB, options tracer.Options, do func(*tracer.Session)) {
	t.Helper()
	tracertest.NeedsRoot(t)
	mustLeaveNothing(t, func() {
		var s *tracer.Session
		eventually(t, "a session is opened", func() bool {
			var err error
			s, err = tracer.Open(t.Context(), options)
			return err == nil
		})
		do(s)
		must(t, s.Close())
	})
}

// followRounds does the command's work of every second, and checks the sizes of the kernel's maps
// each time.
func followRounds(t testing.TB, s *tracer.Session, most int) {
	t.Helper()
	for range 15 {
		s.Follow()
		s.Sample()
		snapshot(t, s)
		if n := len(tracer.Targets(s)); n > most {
			t.Errorf("%d targets", n)
		}

		k := tracer.Kernel(s)
		for _, m := range []*ebpf.Map{k.Targets, k.Mappings, k.Pythons} {
			if n := entriesOf(t, m); n > most {
				t.Errorf("%v has %d entries, want %d at most", m, n, most)
			}
		}
	}
}

// startScript starts a shell with a script that can name itself. It ends with the test.
func startScript(t testing.TB, text string) *tracertest.Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return startCommand(t, exec.Command("/bin/sh", path))
}

func testTreeProcessExecutesItself(t *testing.T) {
	for _, children := range []bool{false, true} {
		t.Run(fmt.Sprint("children ", children), func(t *testing.T) {
			target := startScript(t, `[ "$1" ] || echo ready; exec /bin/sh "$0" again`)
			options := tracer.Options{PID: target.PID(), Interval: 1, Children: children}
			mustTraceAndLeave(t, options, func(s *tracer.Session) { followRounds(t, s, 1) })
		})
	}
}

func testTreeProcessForksTime(t *testing.T) {
	target := startScript(t, `echo ready; while :; do (:) & (:); done`)
	options := tracer.Options{PID: target.PID(), Interval: 1, Children: true}
	mustTraceAndLeave(t, options, func(s *tracer.Session) { followRounds(t, s, tree.MaxTraced) })
}

func testTreeProcessRenamesItself(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("python3", "-c", `import ctypes, itertools
libc = ctypes.CDLL(None)
print("ready", flush=True)
names = [b") Z 1 2 3 (", b"\x1b]0;x\x07\n", b"x\xff) R 0", b""]
for name in itertools.cycle(names): libc.prctl(15, name, 0, 0, 0)`))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Children: true})

	followUntilTraced(t, s, target.PID())
	for range 100 {
		if changes := s.Follow(); len(changes) > 0 {
			t.Fatalf("%+v", changes)
		}

		moment := s.Sample()
		if len(moment.Processes) != 1 || moment.Processes[0].RSS <= 0 || !moment.Members[0].Traced {
			t.Fatalf("%+v", moment)
		}
		if name := moment.Members[0].Command; name != growth.Printable(name) {
			t.Fatalf("%q is not printable", name)
		}
	}
}

func testTreeTreeDepthOne(t *testing.T) {
	const depth = 100
	target := startScript(t, `n=${1:-0}; [ "$1" ] || exec 3<&0
if [ $n -lt 100 ]; then /bin/sh "$0" $((n+1)) & else echo ready; fi
read line <&3`) // all of them end with the input
	options := tracer.Options{PID: target.PID(), Children: true}
	mustTraceAndLeave(t, options, func(s *tracer.Session) {
		eventually(t, "all are followed", func() bool {
			s.Follow()
			return len(s.Sample().Members) == depth+1
		})

		followRounds(t, s, tree.MaxTraced)
	})
}

func testTreeProcessExitsOnce(t *testing.T) {
	tracertest.NeedsRoot(t)
	program := tracertest.Build(t, "steps.c")
	mustLeaveNothing(t, func() {
		for i := range 8 {
			command := exec.Command("/bin/sh", "-c", fmt.Sprintf("sleep 0.0%d", i))
			if i%2 == 1 {
				command = exec.Command(program) // its input has ended
			}
			must(t, command.Start())
			s, err := tracer.Open(t.Context(), tracer.Options{PID: command.Process.Pid, Children: i%4 < 2})
			if err != nil {
				mustBeGone(t, err)
				command.Wait()
				continue
			}
			command.Wait()
			<-s.Done()
			s.Follow()
			s.Sample()
			snapshot(t, s)
			must(t, s.Close())
		}
	})
}
