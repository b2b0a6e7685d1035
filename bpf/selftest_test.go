package bpf

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// needRoot fails the test unless it may load BPF programs.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to load BPF programs: run `make test`, which asks sudo")
	}
}

// loadSelftestPrograms loads the programs of selftest.c.
func loadSelftestPrograms(t *testing.T) map[string]*ebpf.Program {
	t.Helper()
	return loadSelftestCollection(t).Programs
}

// loadSelftestCollection loads the programs of selftest.c with their maps, without the programs of
// the headers that it includes.
func loadSelftestCollection(t *testing.T) *ebpf.Collection {
	t.Helper()
	needRoot(t)

	spec := tracertest.Must(loadSelftest())(t)
	for name := range spec.Programs {
		if !strings.HasPrefix(name, "run_") {
			delete(spec.Programs, name)
		}
	}

	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(collection.Close)
	return collection
}

// compute runs a program of selftest.c on two numbers.
func compute(t *testing.T, program *ebpf.Program, a, b uint64) uint64 {
	t.Helper()
	in, out := selftestArithmetic{A: a, B: b}, selftestArithmetic{}
	tracertest.Must(program.Run(&ebpf.RunOptions{Context: &in, ContextOut: &out}))(t)
	return out.Result
}

func TestNegativeLog(t *testing.T) {
	program := loadSelftestPrograms(t)["run_negative_log"]

	for range 20000 {
		x := max(rand.Uint32()>>rand.UintN(32), 1)
		got := float64(compute(t, program, uint64(x), 0)) / (1 << 24)
		if want := -math.Log(float64(x) / (1 << 32)); math.Abs(got-want) > 5e-5 {
			t.Fatalf("-ln(%d/2^32) = %.6f, want %.6f", x, got, want)
		}
	}
}

// The distance between the distribution of the draws and the exponential one is Kolmogorov's
// statistic.
func TestDrawExponential(t *testing.T) {
	program := loadSelftestPrograms(t)["run_draw"]
	const n = 100000

	for _, mean := range []uint64{4096, 512 << 10, 1 << 32} {
		draws := make([]float64, n)
		var sum float64
		for i := range draws {
			draws[i] = float64(compute(t, program, mean, 0))
			sum += draws[i]
		}

		slices.Sort(draws)
		var distance float64
		for i, x := range draws {
			p := -math.Expm1(-x / float64(mean))
			distance = max(distance, math.Abs(p-float64(i)/n), math.Abs(p-float64(i+1)/n))
		}

		// By chance once in 8,000 runs.
		if limit := 2.2/math.Sqrt(n) + 1/float64(mean); distance > limit {
			t.Errorf("mean %d: Kolmogorov distance %.4f, limit %.4f", mean, distance, limit)
		}
		if off := (sum/n/float64(mean) - 1) * math.Sqrt(n); math.Abs(off) > 4.5 {
			t.Errorf("mean %d: mean of the draws is off by %.1f standard errors", mean, off)
		}
	}
}

func TestReturnWithoutState(t *testing.T) {
	t.Run("each lost return is counted", func(t *testing.T) {
		collection := loadSelftestCollection(t)
		self := uint32(os.Getpid())
		tracertest.NoError(t, collection.Maps["targets"].Put(self, TargetTraced))

		in, out := selftestArithmetic{}, selftestArithmetic{}
		options := ebpf.RunOptions{Context: &in, ContextOut: &out}
		program := collection.Programs["run_returns_without_state"]
		tracertest.Must(program.Run(&options))(t)

		var ofCPUs []uint64
		tracertest.NoError(t, collection.Maps["counters"].Lookup(DropThreadState, &ofCPUs))
		lost := uint64(0)
		for _, n := range ofCPUs {
			lost += n
		}
		if lost != 2 {
			t.Errorf("%d returns of one call of the allocator and one of the driver are counted",
				lost)
		}
	})
}

func TestProduct(t *testing.T) {
	program := loadSelftestPrograms(t)["run_product"]
	const most = math.MaxUint64
	cases := [][2]uint64{
		{0, 0},
		{0, most},
		{1, most},
		{2, most},
		{1 << 32, 1 << 32},
		{1 << 32, 1<<32 - 1},
		{3, most / 3},
		{3, most/3 + 1},
	}
	for range 5000 {
		cases = append(cases,
			[2]uint64{rand.Uint64() >> rand.UintN(64), rand.Uint64() >> rand.UintN(64)})
	}

	for _, c := range cases {
		high, want := bits.Mul64(c[0], c[1])
		if high != 0 {
			want = most // it saturates
		}
		if got := compute(t, program, c[0], c[1]); got != want {
			t.Errorf("%d * %d = %d, want %d", c[0], c[1], got, want)
		}
	}
}

// Sizes of one class differ by less than a quarter.
func TestSizeClass(t *testing.T) {
	program := loadSelftestPrograms(t)["run_size_class"]
	smallest := make(map[uint64]uint64)
	last := uint64(0)

	for size := uint64(0); size < 1<<45; size += 1 + size/50 {
		class := compute(t, program, size, 0)
		if class < last {
			t.Fatalf("size %d has class %d, a smaller one %d", size, class, last)
		}
		last = class

		if first, ok := smallest[class]; !ok {
			smallest[class] = size
		} else if float64(size) >= 1.25*float64(first) {
			t.Fatalf("sizes %d and %d are both of class %d", first, size, class)
		}
	}
}

// A state without an ID belongs to no thread, not even to one that has no thread pointer yet.
func TestIsThread(t *testing.T) {
	program := loadSelftestPrograms(t)["run_is_thread"]
	const pointer = 0x7f0000001000

	for _, c := range []struct{ pointer, key, want uint64 }{
		{pointer, pointer, 1},
		{pointer, pointer + 1, 0},
		{pointer, 0, 0},
		{0, 0, 0},
		{0, pointer, 0},
	} {
		if got := compute(t, program, c.pointer, c.key); got != c.want {
			t.Errorf("thread pointer %#x, ID %#x: %d, want %d", c.pointer, c.key, got, c.want)
		}
	}
}

// Without Python frames, greenlet's library is where a greenlet begins. After an error it is not
// known whether there are any.
func TestBeginsGreenlet(t *testing.T) {
	program := loadSelftestPrograms(t)["run_begins_greenlet"]

	// All offsets are 0: the first word of the interpreter is the address of its first thread, at
	// which nothing can be read.
	interpreter := []uint64{1 << 63}
	address := []uint64{uint64(uintptr(unsafe.Pointer(&interpreter[0])))}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&interpreter[0])
	pin.Pin(&address[0])

	for _, c := range []struct {
		name         string
		err          PythonError
		interpreters uint64
		want         uint64
	}{
		{"no frames", PythonOk, 0, 1},
		{"unreadable frames", PythonMemory, 0, 0},
		{"no thread", PythonNoThread, 0, 0},
		{"unreadable thread", PythonOk, uint64(uintptr(unsafe.Pointer(&address[0]))), 0},
	} {
		if got := compute(t, program, uint64(c.err), c.interpreters); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
