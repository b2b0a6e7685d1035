package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestCheckReturns(t *testing.T) {
	p := tracertest.Must(process.Open(os.Getpid()))(t)
	defer p.Close()

	t.Run("safe return probes need no remedy", func(t *testing.T) {
		got := checkReturns(p, func(*process.Process) error { return nil })
		if got.Finding != "safe in this process" || got.Remedy != "" {
			t.Errorf("%+v", got)
		}
	})

	t.Run("return probes that end the process are reported, with what replaces them", func(t *testing.T) {
		got := checkReturns(p, func(*process.Process) error { return calibrate.ErrFiltered })
		if got.Finding != calibrate.ErrFiltered.Error() || got.Required ||
			!strings.HasPrefix(got.Remedy, "trace without them") {
			t.Errorf("%+v", got)
		}
	})
}

func TestCheckUprobes(t *testing.T) {
	there, missing := t.TempDir(), filepath.Join(t.TempDir(), "uprobe")
	for _, test := range []struct {
		name, device string
		multi        error
		remedied     bool
	}{
		{"link for many functions", missing, nil, false},
		{"single uprobes", there, ebpf.ErrNotSupported, false},
		{"none", missing, ebpf.ErrNotSupported, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := checkUprobes(test.multi, test.device); (got.Remedy != "") != test.remedied {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCheckTracefs(t *testing.T) {
	refused := os.NewSyscallError("fsconfig", unix.EPERM)
	got := checkTracefs(func() (*kernel.Tracefs, error) { return nil, refused })
	want := "fsconfig: operation not permitted: no source mapping"
	if got.Finding != want || got.Remedy == "" {
		t.Errorf("%+v, want %q and a remedy", got, want)
	}
}
