package tracer_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelShim attaches to a file as to our preloaded library, on every kernel. The program prints
// how often each of its semaphores is raised.
func TestKernelShim(t *testing.T) {
	t.Run("semaphores show what is attached", testKernelShimSemaphores)
	t.Run("semaphores fall when allocscope is killed", testKernelShimKilled)
	t.Run("another file takes the name", testKernelShimReplaced)
}

func loadKernel(t *testing.T, mode probe.Mode) *kernel.Kernel {
	t.Helper()
	k, err := kernel.Load(kernel.Config{MaxLive: 64, MaxStacks: 64, MaxFaults: 64, Mode: mode})
	must(t, err)
	t.Cleanup(func() { k.Close() })
	return k
}

func attachShim(t *testing.T, mode probe.Mode, path string) *source.Shim {
	t.Helper()
	tracertest.NeedsRoot(t)
	library := tracertest.Must(os.Open(path))(t)
	t.Cleanup(func() { library.Close() })
	shim := tracertest.Must(source.AttachShim(loadKernel(t, mode), library))(t)
	t.Cleanup(func() { must(t, shim.Close()) })
	return shim
}

func semaphores(target *tracertest.Target) string {
	return strings.Join(target.Do("print"), "; ")
}

func testKernelShimSemaphores(t *testing.T) {
	program := tracertest.Build(t, "markers.c")
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		older := start(t, program)
		shim := attachShim(t, mode, program)
		younger := start(t, program)
		want := func(what, values string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for name, target := range map[string]*tracertest.Target{
				"older": older, "younger": younger, "new": start(t, program),
			} {
				if got := semaphores(target); got != values {
					t.Errorf("%s: %s program has %s, want %s", what, name, got, values)
				}
			}
		}

		want("attached", "0 0 1 0 1", nil)
		want("interval of 512 KiB", "12 0 1 1 1", shim.SetInterval(512<<10))
		want("interval of 16 KiB", "17 0 1 1 1", shim.SetInterval(16<<10))
		want("interval of 1 GiB", "1 0 1 1 1", shim.SetInterval(1<<30))
		want("interval of 1 TiB", "1 0 1 1 1", shim.SetInterval(1<<40))
		want("every allocation", "31 0 1 1 1", shim.SetInterval(1))
		want("hold", "31 1 1 1 1", shim.Hold())
		want("let go, and hold the next ones", "31 2 1 1 1", shim.Hold())
		want("begin again", "31 1 1 1 1", holdBeside(t, shim, older))
		want("hold no more", "31 0 1 1 1", shim.Release())
		want("no interval", "0 0 1 0 1", shim.SetInterval(0))
		want("an interval again", "30 0 1 1 1", shim.SetInterval(2))
		want("closed", "0 0 0 0 0", shim.Close())
		want("interval after the end", "0 0 0 0 0", shim.SetInterval(1))
	})
}

// holdBeside changes which programs wait, while a program looks whether there is a moment when none do.
func holdBeside(t *testing.T, shim *source.Shim, target *tracertest.Target) error {
	t.Helper()
	held := make(chan error)
	go func() { held <- shim.Hold() }()
	for {
		if got := semaphores(target); strings.Fields(got)[1] == "0" {
			t.Errorf("no program waits: %s", got)
		}
		select {
		case err := <-held:
			return err
		default:
		}
	}
}

// testKernelShimReplaced puts another program at the path of the library while that is attached.
func testKernelShimReplaced(t *testing.T) {
	program := tracertest.Build(t, "markers.c")
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		library, victim := copied(t, program, "library"), copied(t, program, "victim")
		own, other := start(t, library), start(t, victim)
		shim := attachShim(t, mode, library)

		err := errors.Join(os.Remove(library), os.Symlink(victim, library),
			shim.SetInterval(1), shim.Hold())
		must(t, err)

		if got := semaphores(own); got != "31 1 1 1 1" {
			t.Errorf("the library has %s", got)
		}
		if got := semaphores(other); got != "0 0 0 0 0" {
			t.Errorf("the file at its path has %s", got)
		}
	})
}

// holdsShim is set where the test binary runs again, to be killed: the path of the library.
const holdsShim = "ALLOCSCOPE_TEST_HOLDS_SHIM"

func testKernelShimKilled(t *testing.T) {
	if path := os.Getenv(holdsShim); path != "" {
		shim := attachShim(t, probe.Automatic, path)
		must(t, shim.SetInterval(512<<10))
		fmt.Println("ready")
		<-t.Context().Done() // until it is killed
	}

	program := tracertest.Build(t, "markers.c")
	target := start(t, program)
	itself := tracertest.Must(os.Executable())(t)
	command := exec.Command(itself, "-test.run=^"+t.Name()+"$", "-test.count=1")
	command.Env = append(os.Environ(), holdsShim+"="+program)
	holder := startCommand(t, command)
	if got := semaphores(target); got != "12 0 1 1 1" {
		t.Errorf("held: %s", got)
	}

	must(t, syscall.Kill(holder.PID(), syscall.SIGKILL))
	for semaphores(target) != "0 0 0 0 0" { // the kernel detaches when the last file is closed
		time.Sleep(time.Millisecond)
	}
}
