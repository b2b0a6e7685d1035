package calibrate

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/calibrate/child"
	"github.com/allocscope/allocscope/tracer/process"
)

// start starts a child that ends with the test, which stays on its thread.
func start(t *testing.T) *childProcess {
	t.Helper()
	runtime.LockOSThread()
	c, err := startChild(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	return c
}

// Code with which the child's functions begin, by the manuals of the processors.
var beginnings = map[string]struct{ usual, stepped []byte }{
	"amd64": {usual: []byte{0x50}, stepped: []byte{0x48, 0x85, 0xff}},                         // push %rax; test %rdi,%rdi
	"arm64": {usual: []byte{0xfd, 0x7b, 0xbf, 0xa9}, stepped: []byte{0x1f, 0x00, 0x00, 0xf1}}, // stp x29,x30,[sp,#-16]!; cmp x0,#0
}

func TestChildTellsWhereItsFunctionsAre(t *testing.T) {
	c := start(t)
	maps, err := c.maps()
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint64]bool)
	for i, address := range []uint64{c.functions.Malloc, c.functions.Free, c.functions.Calloc, c.functions.Stepped} {
		want := beginnings[runtime.GOARCH].usual
		if i == 3 {
			want = beginnings[runtime.GOARCH].stepped
		}
		at, err := offset(maps, address)
		if err != nil {
			t.Fatal(err)
		}
		if seen[at] || !bytes.HasPrefix(code[at:], want) {
			t.Errorf("function %d: at %#x is % x, want % x, once", i, at, code[at:at+8], want)
		}
		seen[at] = true
	}
}

func TestChildAnswersAllOrders(t *testing.T) {
	c := start(t)
	for range 2 {
		var calls child.Calls
		var page float64
		if err := errors.Join(c.ask(child.OrderCalls, &calls), c.ask(child.OrderPages, &page)); err != nil {
			t.Fatal(err)
		}
		if calls.Malloc <= 0 || calls.Free <= 0 || calls.Calloc <= 0 || calls.Stepped <= 0 || page <= 0 {
			t.Errorf("%+v and %v ns a page: all take time", calls, page)
		}
	}
}

func TestChildEndsWithItsOrders(t *testing.T) {
	c := start(t)
	if err := c.orders.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.command.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// mustHaveNoChild looks at the children of the calling thread.
func mustHaveNoChild(t *testing.T) {
	t.Helper()
	if children, err := os.ReadFile("/proc/thread-self/children"); err != nil || len(children) > 0 {
		t.Errorf("children: %q, %v", children, err)
	}
}

func TestAnImpatientMeasurementGivesDefaultsAndLeavesNoChild(t *testing.T) {
	runtime.LockOSThread()
	prices, err := Measure(Tracing{Patience: 1, Detach: func([]link.Link) {}})
	if prices != Defaults || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%+v, %v", prices, err)
	}
	mustHaveNoChild(t)
}

func TestWhatIsNotAttachedHasDefaultsAndLeavesNoChild(t *testing.T) {
	runtime.LockOSThread()
	refused := errors.New("refused")
	detached := 0
	prices, err := Measure(Tracing{
		Patience:  time.Minute,
		SetTraced: func(int, bool) error { return refused },
		Detach:    func(links []link.Link) { detached += 1 + len(links) },
	})
	if prices != Defaults || err == nil || detached != 1 {
		t.Errorf("%+v, %v, detached %d times", prices, err, detached)
	}
	mustHaveNoChild(t)
}

func TestPricesAreDifferencesWithinBounds(t *testing.T) {
	native := child.Calls{Malloc: 2, Free: 3, Calloc: 4, Stepped: 1}
	for name, c := range map[string]struct {
		probed child.Calls
		want   Prices
	}{
		"usual": {
			child.Calls{Malloc: 802, Free: 1003, Calloc: 1504, Stepped: 6001},
			Prices{Entry: 900, Stepped: 6000, Return: 700},
		},
		"nothing": {native, Prices{Entry: LeastTrap, Stepped: LeastTrap, Return: LeastTrap}},
		"less":    {child.Calls{}, Prices{Entry: LeastTrap, Stepped: LeastTrap, Return: LeastTrap}},
		"too much": {
			child.Calls{Malloc: 1e9, Free: 1e9, Calloc: 3e9, Stepped: 1e9},
			Prices{Entry: MostTrap, Stepped: MostTrap, Return: MostTrap},
		},
	} {
		var got Prices
		if got.setTraps(native, c.probed); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAnAddressOutsideOfCodeHasNoOffset(t *testing.T) {
	maps := []process.Mapping{
		{Start: 0x1000, End: 0x2000, Inode: 1},
		{Start: 0x2000, End: 0x3000, Inode: 1, Offset: 0x5000, Execute: true},
		{Start: 0x3000, End: 0x4000, Execute: true},
	}
	if at, err := offset(maps, 0x2010); at != 0x5010 || err != nil {
		t.Errorf("%#x, %v", at, err)
	}
	for _, address := range []uint64{0xfff, 0x1000, 0x1fff, 0x3000, 0x4000} {
		if at, err := offset(maps, address); err == nil {
			t.Errorf("%#x is at %#x", address, at)
		}
	}
}
