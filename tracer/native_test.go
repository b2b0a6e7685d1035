//go:build amd64

package tracer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// busyPython calls the allocator from below Python code and C extensions, with callbacks from C into Python and, through
// ctypes, from machine code made at run time. It goes on until it is killed.
const busyPython = `
import bz2, ctypes, decimal, functools, hashlib, json, pickle, re, sqlite3, threading, time, xml.parsers.expat, zlib

class Item:
    def __init__(self, key): self.key, self.text = key, "x" * (600 + key)
    def __lt__(self, other): return bytes(700) and self.key < other.key
    def __reduce__(self): return Item, (len(bytearray(800)),)

COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
qsort = ctypes.CDLL(None).qsort

def callbacks(n):
    array = (ctypes.c_int * 8)(*[(i * n) % 11 for i in range(8)])
    qsort(array, 8, 4, COMPARE(lambda a, b: len(bytes(900)) and a[0] - b[0]))
    sorted([Item(i * n % 7) for i in range(8)], key=lambda item: bytes(1000) and item)
    functools.reduce(lambda a, b: a + b, ["y" * 700] * 5)
    re.sub(r"\d+", lambda match: "z" * 900, "1 22 333 " * 20)

def generate(depth):
    yield bytes(2000)
    if depth: yield from generate(depth - 1)

def extensions(n):
    zlib.decompress(zlib.compress(b"a" * 5000 * n)); bz2.compress(b"b" * 9000); hashlib.sha256(b"c" * 4000).copy()
    json.loads(json.dumps([{"k": "v" * 600}] * n)); pickle.loads(pickle.dumps([Item(i) for i in range(n)]))
    decimal.Context(prec=900).divide(decimal.Decimal(1), decimal.Decimal(7))
    parser = xml.parsers.expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: bytes(1500)
    parser.Parse("<a><b c='d'/></a>", True)
    database = sqlite3.connect(":memory:")
    database.create_function("f", 1, lambda x: "q" * 700)
    database.execute("create table t(x)"); database.executemany("insert into t values (f(?))", [(i,) for i in range(n)])
    database.execute("select * from t order by x").fetchall()

def forever():
    while True:
        for n in range(1, 9):
            callbacks(n); extensions(n); list(generate(n)); time.sleep(0.001)

threading.Thread(target=forever, daemon=True).start()
print("ready", flush=True)
forever()
`

// Not one stack of gdb's in a hundred is missing from ours, and ours are whole.
func TestNativeStacksAreThoseOfGdb(t *testing.T) {
	t.Parallel()
	const stops = 250
	for _, c := range []struct {
		of    string
		skip  int
		start func(testing.TB) int
	}{
		{"a C++ program", 60, func(t testing.TB) int {
			target := tracertest.Start(t, tracertest.Build(t, "native.cc", "-pthread", "-s", "-fomit-frame-pointer"))
			target.Await("ready")
			return target.PID()
		}},
		{"python", 40, func(t testing.TB) int {
			target := tracertest.Start(t, python, "-c", busyPython)
			target.Await("ready")
			return target.PID()
		}},
		{"a torch trainer", 100, func(t testing.TB) int {
			trainer := startTrainer(t)
			trainer.train(20, nothing)
			trainer.Say("1000000")
			return trainer.PID()
		}},
	} {
		t.Run("of "+c.of, func(t *testing.T) {
			pid := c.start(t)
			s := open(t, tracer.Options{PID: pid, Interval: 1, NativeFrames: true})
			want := gdbStacks(t, pid, stops, c.skip)
			got := snapshot(t, s)
			mustBeWhole(t, got)
			mustAgree(t, got, want)
		})
	}
}

// A gdbFrame is what stops.py writes: the program counter and the function.
type gdbFrame struct {
	pc       uint64
	function string
}

// UnmarshalJSON reads [pc, function].
func (f *gdbFrame) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&f.pc, &f.function})
}

// gdbStacks stops a process at so many random calls of malloc, with skip calls between two on average.
func gdbStacks(t *testing.T, pid, stops, skip int) [][]gdbFrame {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stops.json")
	order := fmt.Sprintf("python (stops, skip, path) = (%d, %d, %q)", stops, skip, path)
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute) // two were too few beside eight busy loops
	defer cancel()
	gdb := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", fmt.Sprint(pid), "-ex", order, "-x", tracertest.Source("stops.py"))
	said, err := gdb.CombinedOutput()
	if err != nil {
		t.Fatalf("gdb (apt-get install gdb): %v\n%s", err, said)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("gdb wrote no stacks: %v\n%s", err, said)
	}
	var stacks [][]gdbFrame
	for line := range bytes.Lines(text) {
		var stack []gdbFrame
		if err := json.Unmarshal(line, &stack); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		stacks = append(stacks, stack)
	}
	if len(stacks) != stops {
		t.Fatalf("gdb stopped %d times, want %d:\n%s", len(stacks), stops, said)
	}
	return stacks
}

// notReady is what cuts stacks in the first seconds, before gdb has come.
const notReady = "unwind table not ready yet"

// mustBeWhole asks that 99 % of the allocations have a stack that reaches the start of its thread, once the tables are there.
func mustBeWhole(t *testing.T, got *growth.Snapshot) {
	t.Helper()
	var all, cut float64
	why := make(map[string]float64)
	for _, h := range got.Holdings {
		if h.Kind != growth.KindHeap || h.Stack.Truncated == notReady {
			continue
		}
		all += h.AllocObjects
		if h.Stack.Truncated != "" || h.Stack.ID == 0 {
			cut += h.AllocObjects
			why[h.Stack.Truncated] += h.AllocObjects
		}
	}
	t.Logf("%.0f of %.0f allocations with a cut stack: %v", cut, all, why)
	if cut > all/100 {
		t.Errorf("%.0f of %.0f allocations have a cut stack, want less than 1 %%: %v", cut, all, why)
	}
}

// mustAgree asks that 99 % of gdb's stacks are among ours, address for address from malloc's return address on.
func mustAgree(t *testing.T, got *growth.Snapshot, want [][]gdbFrame) {
	t.Helper()
	whole := make(map[string]bool)
	for _, h := range got.Holdings {
		if h.Stack.Truncated == "" && len(h.Stack.Frames) > 1 {
			whole[returns(native(h.Stack.Frames[1:]))] = true
		}
	}
	var missing [][]gdbFrame
	frames, different := 0, make(map[string]bool)
	for _, stack := range want {
		frames += len(stack)
		key := returns(stack[1:])
		different[key] = true
		if !whole[key] {
			missing = append(missing, stack)
		}
	}
	t.Logf("%d stacks of gdb's, %d of them different, %d frames on average; %d not among our %d", len(want), len(different), frames/len(want), len(missing), len(whole))
	for _, stack := range missing[:min(len(missing), 3)] {
		t.Logf("gdb's:\n%s\nours that is most like it:\n%s", write(stack), write(closest(got, stack)))
	}
	if len(missing)*100 > len(want) {
		t.Errorf("%d of %d stacks of gdb's are not among ours", len(missing), len(want))
	}
	if len(different)*10 < len(want) {
		t.Errorf("gdb stopped in %d different stacks, want %d at least", len(different), len(want)/10)
	}
}

// native frames of ours, without those of Python.
func native(frames []growth.Frame) []gdbFrame {
	var list []gdbFrame
	for _, f := range frames {
		if f.Module != nil {
			list = append(list, gdbFrame{f.Address, f.Function})
		}
	}
	return list
}

func returns(frames []gdbFrame) string {
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "%x ", f.pc)
	}
	return text.String()
}

func write(frames []gdbFrame) string {
	var text strings.Builder
	for i, f := range frames {
		fmt.Fprintf(&text, "%4d %#x %s\n", i, f.pc, f.function)
	}
	return text.String()
}

// closest is our stack that has the most frames in common with gdb's from the innermost on, so that one sees where ours went
// another way.
func closest(got *growth.Snapshot, want []gdbFrame) []gdbFrame {
	var best []gdbFrame
	most := -1
	for _, h := range got.Holdings {
		frames := native(h.Stack.Frames)
		common := 1
		for common < min(len(frames), len(want)) && frames[common].pc == want[common].pc {
			common++
		}
		if common > most {
			most, best = common, append(frames, gdbFrame{0, h.Stack.Truncated})
		}
	}
	return best
}
