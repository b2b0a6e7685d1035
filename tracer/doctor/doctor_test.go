package doctor

import (
	"os"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/process"
)

func TestCheckReturns(t *testing.T) {
	p, err := process.Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
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
