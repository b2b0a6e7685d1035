//go:build amd64

package tracer_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestNative holds native stacks against gdb's, and against programs that know where they are.
func TestNative(t *testing.T) {
	t.Run("stacks are those of gdb", testNativeStacksThoseGdb)
	t.Run("every instruction that a signal can interrupt", testNativeInstructionSignalCan)
	t.Run("generated code that keeps a frame pointer", testNativeGeneratedCodeKeeps)
	t.Run("cached rules of replaced mappings are not used", testNativeCachedRulesReplaced)
}

// busyPython calls the allocator from below Python code and C extensions: with callbacks from C
// into Python and, through ctypes, from machine code made at run time. It goes on until it is
// killed.
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

// Fewer than one in a hundred of gdb's stacks is missing from ours, and ours are complete.
func testNativeStacksThoseGdb(t *testing.T) {
	t.Parallel()
	const stops = 120
	for _, c := range []struct {
		of    string
		skip  int
		start func(testing.TB) int
	}{
		{"a C++ program", 17, func(t testing.TB) int {
			target := start(t, tracertest.Build(t, "native.cc", "-pthread", "-s",
				"-fomit-frame-pointer"))
			return target.PID()
		}},
		{"python", 13, func(t testing.TB) int {
			target := start(t, python, "-c", busyPython)
			return target.PID()
		}},
		{"a torch trainer", 31, func(t testing.TB) int {
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

// A gdbFrame is a frame that stops.py writes: the program counter and the function.
type gdbFrame struct {
	pc       uint64
	function string
}

func (f *gdbFrame) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&f.pc, &f.function})
}

// gdbStacks stops a process at so many random calls of malloc, with skip calls between two on
// average.
func gdbStacks(t *testing.T, pid, stops, skip int) [][]gdbFrame {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stops.json")
	order := fmt.Sprintf("python (stops, skip, path) = (%d, %d, %q)", stops, skip, path)
	// two were too few beside eight busy loops
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	gdb := exec.CommandContext(ctx, "gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p",
		fmt.Sprint(pid), "-ex", order, "-x", tracertest.Source("stops.py"))
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

// notReady truncates stacks in the first seconds, before gdb has come.
const notReady = "unwind table not ready yet"

// mustBeWhole wants 99% of the allocations to have a stack that reaches the start of its thread,
// once the tables are there.
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
		t.Errorf("%.0f of %.0f allocations have a cut stack, want less than 1 %%: %v", cut, all,
			why)
	}
}

// mustAgree wants 99% of gdb's stacks to be among ours, address for address from malloc's return
// address on.
func mustAgree(t *testing.T, got *growth.Snapshot, want [][]gdbFrame) {
	t.Helper()
	whole := make(map[string]bool)
	for _, h := range got.Holdings {
		if h.Stack.Truncated == "" && len(h.Stack.Frames) > 1 {
			whole[addresses(nativeFrames(h.Stack.Frames[1:]))] = true
		}
	}

	var missing [][]gdbFrame
	frames, different := 0, make(map[string]bool)
	for _, stack := range want {
		frames += len(stack)
		key := addresses(stack[1:])
		different[key] = true
		if !whole[key] {
			missing = append(missing, stack)
		}
	}

	t.Logf("%d stacks of gdb's, %d of them different, %d frames on average; %d not among our %d",
		len(want), len(different), frames/len(want), len(missing), len(whole))
	for _, stack := range missing[:min(len(missing), 3)] {
		t.Logf("gdb's:\n%s", formatFrames(stack))
	}
	if len(missing)*100 > len(want) {
		t.Errorf("%d of %d stacks of gdb's are not among ours", len(missing), len(want))
	}

	if len(different)*10 < len(want) {
		t.Errorf("gdb stopped in %d different stacks, want %d at least", len(different),
			len(want)/10)
	}
}

func nativeFrames(frames []growth.Frame) []gdbFrame {
	var list []gdbFrame
	for _, f := range frames {
		if f.Module != nil {
			list = append(list, gdbFrame{f.Address, f.Function})
		}
	}
	return list
}

func addresses(frames []gdbFrame) string {
	var text strings.Builder
	for _, f := range frames {
		fmt.Fprintf(&text, "%x ", f.pc)
	}
	return text.String()
}

func formatFrames(frames []gdbFrame) string {
	var text strings.Builder
	for i, f := range frames {
		fmt.Fprintf(&text, "%4d %#x %s\n", i, f.pc, f.function)
	}
	return text.String()
}

// trap.c allocates and counts in a signal handler before every instruction that it steps through.
func testNativeInstructionSignalCan(t *testing.T) {
	for _, c := range []struct {
		mode, in string
		places   int // at which the handler has interrupted that code, at least
	}{
		{"plt", ".plt", 5}, // three of the function's entry, two of the first entry
		{"vdso", "[vdso]", 10},
	} {
		t.Run("of the "+c.mode, func(t *testing.T) {
			program := tracertest.Build(t, "trap.c", "-Wl,-z,lazy")
			got, want := trap(t, program, c.mode)
			plt := section(t, program, ".plt")
			var right float64
			places := make(map[uint64]bool)
			for _, h := range got.Holdings {
				at := index(h.Stack, "allocate")
				if at < 0 {
					continue
				}
				if !isWhole(h.Stack, "step_"+c.mode) && !isInResolver(h.Stack) {
					t.Errorf("ends with %q:\n%s", h.Stack.Truncated,
						formatFrames(nativeFrames(h.Stack.Frames)))
					continue
				}
				right += h.AllocObjects
				f := h.Stack.Frames[at+2] // behind the signal's return code
				offset := f.Address - f.Module.Start + f.Module.Offset
				if f.Module.Path == c.in || f.Module.Path == program && offset-plt.Offset < plt.Size &&
					c.in == plt.Name {
					places[f.Address] = true
				}
			}
			if right != want {
				t.Errorf("%.0f stacks are right, want %.0f", right, want)
			}
			if len(places) < c.places {
				t.Errorf("%d instructions of %s were interrupted, want %d at least", len(places),
					c.in, c.places)
			}
		})
	}
}

func testNativeGeneratedCodeKeeps(t *testing.T) {
	for mode, truncated := range map[string]string{"jit": "", "jit-bare": "no frame pointer"} {
		t.Run(mode, func(t *testing.T) {
			got, _ := trap(t, tracertest.Build(t, "trap.c", "-Wl,-z,lazy"), mode)
			seen := false
			for _, h := range got.Holdings {
				at := index(h.Stack, "allocate")
				if at < 0 {
					continue
				}
				seen = true
				frames := h.Stack.Frames
				if len(frames) < at+2 || frames[at+1].Module.Path != "[anonymous]" ||
					h.Stack.Truncated != truncated {
					t.Fatalf("ends with %q, want %q:\n%s", h.Stack.Truncated, truncated,
						formatFrames(nativeFrames(frames)))
				}
				if truncated == "" && (!isWhole(h.Stack, "call_generated") ||
					!strings.HasSuffix(frames[at+2].Function, marked)) {
					t.Errorf("is not whole, or %s is not marked:\n%s", frames[at+2].Function,
						formatFrames(nativeFrames(frames)))
				}
			}
			if !seen {
				t.Error("the allocation was not seen")
			}
		})
	}
}

// trap runs trap.c. It returns the allocations seen and the number of allocations that the program
// made.
func trap(t *testing.T, program, mode string) (*growth.Snapshot, float64) {
	t.Helper()
	target, s := openOn(t, start(t, program, mode), tracer.Options{Interval: 1, NativeFrames: true})

	truth := target.Do("go")
	n := tracertest.Must(strconv.ParseFloat(strings.Join(truth, " "), 64))(t)
	return snapshot(t, s), n
}

// marked are frames found by the promises of generated code, not by a table.
const marked = " [by frame pointer]"

// index of the frame of a function; -1 if there is none.
func index(stack *growth.Stack, function string) int {
	return slices.IndexFunc(stack.Frames,
		func(f growth.Frame) bool { return strings.TrimSuffix(f.Function, marked) == function })
}

// isWhole reports whether main called the function and the thread began in _start.
func isWhole(stack *growth.Stack, function string) bool {
	at := index(stack, function)
	return stack.Truncated == "" && at >= 0 && index(stack, "main") == at+1 &&
		index(stack, "_start") == len(stack.Frames)-1
}

// isInResolver reports whether a stack is below the dynamic linker's code that binds functions on
// their first call. Its frame hangs on rbx, which is not followed up a stack.
func isInResolver(stack *growth.Stack) bool {
	return slices.ContainsFunc(stack.Frames,
		func(f growth.Frame) bool { return strings.HasPrefix(f.Function, "_dl_runtime_resolve") })
}

func section(t *testing.T, program, name string) *elf.Section {
	t.Helper()
	file := tracertest.Must(elf.Open(program))(t)
	defer file.Close()
	return file.Section(name)
}

// generation is the number of the kernel side's data on a process's code.
func generation(t *testing.T, s *tracer.Session, pid int) uint64 {
	t.Helper()
	var id ebpf.MapID
	must(t, tracer.Kernel(s).Mappings.Lookup(uint32(pid), &id))

	mappings, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0 // replaced meanwhile
	}
	defer mappings.Close()
	var first bpf.Mapping
	must(t, mappings.Lookup(uint32(0), &first))
	return first.Bias
}

// A cached rule belongs to one generation of mappings. Addresses that differ as two generations do
// were once taken for each other.
func testNativeCachedRulesReplaced(t *testing.T) {
	const generations = 40
	target, s := openOn(t, start(t, tracertest.Build(t, "generations.c")), exact)
	awaitTables(s)
	for range generations {
		before := generation(t, s, target.PID())
		order(target, "map")
		eventually(t, "the code that was mapped is known",
			func() bool { return generation(t, s, target.PID()) > before })
		order(target, "call")
	}

	calls := make(map[string]float64)
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) > 2 && h.Stack.Frames[2].Function == "main" {
			calls[h.Stack.Frames[1].Function] += h.InuseObjects
		}
	}
	if calls["shallow"] != generations || calls["deep"] != generations {
		t.Errorf("%v objects by function that main has called, want %d by each", calls, generations)
	}
	mustLoseNothing(t, s)
}
