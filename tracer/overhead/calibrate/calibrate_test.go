package calibrate

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/overhead/calibrate/child"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// start starts a child that ends with the test, which stays on its thread.
func start(t *testing.T) *childProcess {
	t.Helper()
	runtime.LockOSThread()
	c := tracertest.Must(startChild(time.Minute))(t)
	t.Cleanup(c.end)
	return c
}

// The first instructions of the child's functions, by the manuals of the processors.
var prologues = map[string]struct{ usual, stepped []byte }{
	"amd64": {
		usual:   []byte{0x50},             // push %rax
		stepped: []byte{0x48, 0x85, 0xff}, // test %rdi,%rdi
	},
	"arm64": {
		usual:   []byte{0x21, 0x00, 0x00, 0xb4}, // cbz x1,.+4
		stepped: []byte{0x1f, 0x00, 0x00, 0xf1}, // cmp x0,#0
	},
}

func TestChild(t *testing.T) {
	t.Run("functions are in the executable", func(t *testing.T) {
		c := start(t)
		maps := tracertest.Must(c.maps())(t)
		code := tracertest.Must(os.ReadFile(reexec.Executable))(t)

		seen := make(map[uint64]bool)
		f := c.functions
		for i, address := range []uint64{f.Malloc, f.Free, f.Calloc, f.Stepped} {
			want := prologues[runtime.GOARCH].usual
			if i == 3 {
				want = prologues[runtime.GOARCH].stepped
			}
			at := tracertest.Must(fileOffset(maps, address))(t)
			if seen[at] || !bytes.HasPrefix(code[at:], want) {
				t.Errorf("function %d: at %#x is % x, want % x, once", i, at, code[at:at+8], want)
			}
			seen[at] = true
		}
	})

	t.Run("answers all orders", func(t *testing.T) {
		c := start(t)
		for range 2 {
			var calls child.Calls
			var page float64
			if err := errors.Join(c.ask(child.OrderCalls, &calls),
				c.ask(child.OrderPages, &page)); err != nil {
				t.Fatal(err)
			}
			if min(calls.Malloc, calls.Free, calls.Calloc, calls.Stepped, page) <= 0 {
				t.Errorf("%+v and %v ns a page: all take time", calls, page)
			}
		}
	})

	t.Run("ends with its orders", func(t *testing.T) {
		c := start(t)
		tracertest.NoError(t, c.orders.Close())
		if err := c.command.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// Costs that cannot be measured have defaults, and no child is left.
func TestMeasure(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		timeout time.Duration
		want    error // nil: any
	}{"timeout": {1, os.ErrDeadlineExceeded}, "not attached": {time.Minute, nil}} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			detached := 0
			costs, err := Measure(t.Context(), Tracing{
				Timeout:  c.timeout,
				Programs: func(string) (*ebpf.Program, error) { return nil, refused },
				Detach:   func([]link.Link) { detached++ },
			})
			if costs != DefaultCosts || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%+v, %v", costs, err)
			}
			if c.want == nil && detached != 1 {
				t.Errorf("detached %d times", detached)
			}
			children, err := os.ReadFile("/proc/thread-self/children")
			if err != nil || len(children) > 0 {
				t.Errorf("children: %q, %v", children, err)
			}
		})
	}
}

func TestSetTraps(t *testing.T) {
	native := child.Calls{Malloc: 2, Free: 3, Calloc: 4, Stepped: 1}
	least := Costs{Entry: MinTrapCost, Stepped: MinTrapCost, Return: MinTrapCost}
	for name, c := range map[string]struct {
		probed child.Calls
		want   Costs
	}{
		"usual": {
			child.Calls{Malloc: 802, Free: 1003, Calloc: 1504, Stepped: 6001},
			Costs{Entry: 900, Stepped: 6000, Return: 700},
		},
		"no difference": {native, least},
		"faster":        {child.Calls{}, least},
		"too much": {
			child.Calls{Malloc: 1e9, Free: 1e9, Calloc: 3e9, Stepped: 1e9},
			Costs{Entry: MaxTrapCost, Stepped: MaxTrapCost, Return: MaxTrapCost},
		},
	} {
		var got Costs
		if got.setTraps(native, c.probed); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestFileOffset(t *testing.T) {
	maps := []process.Mapping{
		{Start: 0x1000, End: 0x2000, Inode: 1},
		{Start: 0x2000, End: 0x3000, Inode: 1, Offset: 0x5000, Execute: true},
		{Start: 0x3000, End: 0x4000, Execute: true},
	}
	if at, err := fileOffset(maps, 0x2010); at != 0x5010 || err != nil {
		t.Errorf("%#x, %v", at, err)
	}
	for _, address := range []uint64{0xfff, 0x1000, 0x1fff, 0x3000, 0x4000} {
		if at, err := fileOffset(maps, address); err == nil {
			t.Errorf("%#x is at %#x", address, at)
		}
	}
}
