package calibrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/tracer/overhead/calibrate/child"
)

// A nothing replaces probes.
type nothing struct{}

func (nothing) Close() error { return nil }

// The test does by hand the work of a kernel on a child whose return is probed.
func TestCheckFilter(t *testing.T) {
	t.Run("child that dies shows that return probes are not safe", func(t *testing.T) {
		err := checkFilter(func(c *childProcess) (io.Closer, error) {
			return nothing{}, c.command.Process.Signal(syscall.SIGSEGV)
		})
		if !errors.Is(err, ErrFiltered) {
			t.Errorf("%v, want %v", err, ErrFiltered)
		}
	})

	t.Run("child that lives shows that they are", func(t *testing.T) {
		err := checkFilter(func(*childProcess) (io.Closer, error) { return nothing{}, nil })
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("probes that cannot be attached show nothing", func(t *testing.T) {
		refused := errors.New("refused")
		err := checkFilter(func(c *childProcess) (io.Closer, error) { return nil, refused })
		if !errors.Is(err, refused) || errors.Is(err, ErrFiltered) {
			t.Errorf("%v, want %v", err, refused)
		}
	})
}

// The kernel's account of the child is the oracle for its filter.
func TestChildFilter(t *testing.T) {
	t.Run("filter applies to the thread that calls calloc", func(t *testing.T) {
		c := start(t)
		var refusal uint32
		if err := c.ask(child.OrderFilter, &refusal); err != nil || refusal != 0 {
			t.Fatalf("%v, error number %d", err, refusal)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid()))
		if err != nil || !strings.Contains(string(status), "Seccomp:\t2\n") {
			t.Errorf("%v; no filter is installed: %s", err, status)
		}
	})
}
