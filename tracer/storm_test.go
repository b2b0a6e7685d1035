package tracer_test

// Processes that make it hard to follow them: the session goes on, and leaves nothing behind.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
	"github.com/allocscope/allocscope/tracer/tree"
)

// mustLeaveNothing does something and wants that no descriptors and goroutines are left of it.
func mustLeaveNothing(t testing.TB, do func()) {
	t.Helper()
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	do()
	eventually(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	if more := descriptors(t) - fds; more > 0 {
		t.Errorf("%d descriptors are left", more)
	}
}

// openEventually opens a session on a process that makes this fail now and then.
func openEventually(t testing.TB, options tracer.Options) (s *tracer.Session) {
	t.Helper()
	tracertest.NeedsRoot(t)
	eventually(t, "a session is opened", func() bool {
		var err error
		s, err = tracer.Open(t.Context(), options)
		return err == nil
	})
	return s
}

// rounds does what the command does every second, and looks at the kernel's maps each time.
func rounds(t testing.TB, s *tracer.Session, most int) {
	t.Helper()
	for range 15 {
		s.Follow()
		s.Sample()
		snapshot(t, s)
		if n := s.Targets(); n > most {
			t.Errorf("%d targets", n)
		}
		for _, name := range []string{"targets", "mappings", "pythons"} {
			if n := size(t, s, name); n > most {
				t.Errorf("%s has %d entries, want %d at most", name, n, most)
			}
		}
	}
}

func size(t testing.TB, s *tracer.Session, name string) (entries int) {
	t.Helper()
	m := s.Maps()[name]
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	all := m.Iterate()
	for all.Next(&key, &value) {
		entries++
	}
	return entries
}

// script starts a shell with a script that can name itself; it ends with the test.
func script(t testing.TB, text string) *tracertest.Target {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	target := tracertest.StartCommand(t, exec.Command("/bin/sh", path))
	target.Await("ready")
	return target
}

func TestAProcessThatExecutesItselfAllTheTimeIsSurvived(t *testing.T) {
	for _, children := range []bool{false, true} {
		t.Run(fmt.Sprint("children ", children), func(t *testing.T) {
			target := script(t, `[ "$1" ] || echo ready; exec /bin/sh "$0" again`)
			mustLeaveNothing(t, func() {
				s := openEventually(t, tracer.Options{PID: target.PID(), Interval: 1, Children: children})
				rounds(t, s, 1)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAProcessThatForksAllTheTimeIsSurvived(t *testing.T) {
	target := script(t, `echo ready; while :; do (:) & (:); done`)
	mustLeaveNothing(t, func() {
		s := openEventually(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})
		rounds(t, s, tree.MaxTraced)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAProcessThatRenamesItselfAllTheTimeStaysTheSame(t *testing.T) {
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
		if name := moment.Members[0].Command; name != process.Printable(name) {
			t.Fatalf("%q is not printable", name)
		}
	}
}

func TestATreeOfDepthOneHundredIsFollowed(t *testing.T) {
	const depth = 100
	target := script(t, `n=${1:-0}; [ "$1" ] || exec 3<&0
if [ $n -lt 100 ]; then /bin/sh "$0" $((n+1)) & else echo ready; fi
read line <&3`) // all of them end with the input
	mustLeaveNothing(t, func() {
		s := openEventually(t, tracer.Options{PID: target.PID(), Children: true})
		eventually(t, "all are followed", func() bool {
			s.Follow()
			return len(s.Sample().Members) == depth+1
		})
		rounds(t, s, tree.MaxTraced)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAProcessThatExitsAtOnceEndsTheTraceOrIsRefused(t *testing.T) {
	tracertest.NeedsRoot(t)
	program := tracertest.Build(t, "steps.c")
	mustLeaveNothing(t, func() {
		for i := range 8 {
			command := exec.Command("/bin/sh", "-c", fmt.Sprintf("sleep 0.0%d", i))
			if i%2 == 1 {
				command = exec.Command(program) // its input has ended
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
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
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
