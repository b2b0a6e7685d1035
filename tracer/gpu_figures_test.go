package tracer_test

// What is compared on a GPU, with torch's own figures and the driver's, by `make test-gpu`: here with what stands for them.

import (
	"fmt"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// gpuFigures are what a snapshot says of the memory of its only process on GPUs, in bytes.
type gpuFigures struct {
	allocated, reserved int64 // totals, as torch's allocator has told them
	blocks              int64 // that are known by stack
	segments            int64 // what torch's allocator has from the driver
	others              int64 // what anybody else has from it
	pinned, pinnedRAM   int64 // of the host's memory, by torch: asked for, and resident
	used                int64 // what the driver counts
}

// figuresOf takes for torch's what was called from libraries whose names begin so.
func figuresOf(snapshot *growth.Snapshot, torch ...string) (gpuFigures, error) {
	if len(snapshot.GPUMemory) != 1 {
		return gpuFigures{}, fmt.Errorf("%d processes use a GPU, want one: %+v", len(snapshot.GPUMemory), snapshot.GPUMemory)
	}
	d := snapshot.GPUMemory[0]
	f := gpuFigures{allocated: d.Allocated, reserved: d.Reserved, used: d.Used}
	for _, h := range snapshot.GPUHoldings {
		switch {
		case h.Kind == growth.KindCudaBlock:
			f.blocks += h.InuseBytes
		case h.Kind != growth.KindCudaSegment:
		case isCalledFrom(h.Stack, torch):
			f.segments += h.InuseBytes
		default:
			f.others += h.InuseBytes
		}
	}
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindPinned && isCalledFrom(h.Stack, torch) {
			f.pinned += h.InuseBytes
			f.pinnedRAM += h.ResidentBytes
		}
	}
	return f, nil
}

// isCalledFrom tells whether CUDA was called from one of these libraries: its driver, and mostly its runtime, are above them on the stack.
func isCalledFrom(stack *growth.Stack, libraries []string) bool {
	for _, f := range stack.Frames {
		if f.Module == nil {
			return false
		}
		name := path.Base(f.Module.Path)
		if strings.HasPrefix(name, "libcuda.so") || strings.HasPrefix(name, "libcudart") {
			continue
		}
		for _, library := range libraries {
			if strings.HasPrefix(name, library) {
				return true
			}
		}
		return false
	}
	return false
}

// misfits are the totals that are not torch's, each in words.
func (f gpuFigures) misfits(torch tracertest.TorchTotals) (texts []string) {
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"allocated", f.allocated, torch.Allocated},
		{"reserved", f.reserved, torch.Reserved},
	} {
		if c.got != c.want {
			texts = append(texts, fmt.Sprintf("%s: %d bytes, torch says %d", c.what, c.got, c.want))
		}
	}
	return texts
}

// misfitsFromStart are those of a process that has been traced since before its first tensor: blocks and segments are known as well.
func (f gpuFigures) misfitsFromStart(torch tracertest.TorchTotals) []string {
	texts := f.misfits(torch)
	if f.blocks != torch.Allocated {
		texts = append(texts, fmt.Sprintf("blocks: %d bytes, torch says %d", f.blocks, torch.Allocated))
	}
	if f.segments != torch.Reserved {
		texts = append(texts, fmt.Sprintf("segments: %d bytes from the driver besides %d of others, torch says %d", f.segments, f.others, torch.Reserved))
	}
	return texts
}

// apart is how far what the driver has handed out and a context are from what it counts, as a share of that.
func (f gpuFigures) apart(context, used int64) float64 {
	return math.Abs(float64(used-context-f.segments-f.others)) / float64(used)
}

// usedOnGPUs is what the driver counts for the only process. Where it does not list it, as in many containers, that is what all GPUs have more
// than before it came, and by says so.
func usedOnGPUs(before, now growth.TreeSample) (bytes int64, by string, err error) {
	if len(now.Processes) == 1 && now.Processes[0].GPUUsed != growth.Unknown {
		return now.Processes[0].GPUUsed, "the process", nil
	}
	if len(now.GPUs) == 0 || len(before.GPUs) != len(now.GPUs) {
		return 0, "", fmt.Errorf("NVML tells neither the process's memory nor that of GPUs: %d before, %d now", len(before.GPUs), len(now.GPUs))
	}
	for i, g := range now.GPUs {
		if g.Used == growth.Unknown || before.GPUs[i].Used == growth.Unknown {
			return 0, "", fmt.Errorf("NVML does not tell the memory of GPU %d", g.Index)
		}
		bytes += g.Used - before.GPUs[i].Used
	}
	return bytes, "all GPUs, what they had before taken off", nil
}

// heldThrough sums the device memory of a kind that a line of a program of testdata has allocated, called or brought about.
func heldThrough(snapshot *growth.Snapshot, kind growth.Kind, file string, line int) (bytes int64) {
	for _, h := range snapshot.GPUHoldings {
		if h.Kind == kind && slices.ContainsFunc(h.Stack.Frames, func(f growth.Frame) bool { return f.Python && f.File == file && f.Line == line }) {
			bytes += h.InuseBytes
		}
	}
	return bytes
}

// mustFigure is what a snapshot of a session says.
func mustFigure(t *testing.T, s *tracer.Session, torch ...string) gpuFigures {
	t.Helper()
	f, err := figuresOf(snapshot(t, s), torch...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// blocksTotals are the totals of blocks.py on its only device, as those of torch.
func blocksTotals(t *testing.T, g gpuProgram) tracertest.TorchTotals {
	t.Helper()
	all := g.allocators()
	if len(all) != 1 {
		t.Fatalf("totals of blocks.py: %+v, want those of one GPU", all)
	}
	return tracertest.TorchTotals{Allocated: all[0].Allocated, Reserved: all[0].Reserved, Pinned: tracertest.NotTold}
}

// startTorchsBlocks starts blocks.py with the distribution's libc10, and with a driver.
func startTorchsBlocks(t *testing.T) gpuProgram {
	t.Helper()
	g := startBlocks(t, realLibC10(t))
	g.do("driver " + libcuda(t))
	return g
}

const callsForTorch = "libffi.so" // by which Python's ctypes calls CUDA's driver

func TestFromTheStartBlocksAndSegmentsAreTorchs(t *testing.T) {
	target := startTorchsBlocks(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	awaitBlocks(t, s)
	for _, orders := range []string{"hold weights 30 1000 0", "hold activations 7 3000000 0", "free weights 11 0", "churn 50 70000 0", "hold weights 1 30000000 0"} {
		target.do(orders)
		torch := blocksTotals(t, target)
		f := mustFigure(t, s, callsForTorch)
		if texts := f.misfitsFromStart(torch); len(texts) > 0 || f.others != 0 || f.pinned != 0 {
			t.Errorf("after %q: %q, %+v", orders, texts, f)
		}
		torch.Allocated++
		torch.Reserved++
		if texts := f.misfitsFromStart(torch); len(texts) != 4 {
			t.Errorf("of totals that are not torch's these are found: %q", texts)
		}
	}
	if f := mustFigure(t, s, "libc10_cuda"); f.segments != 0 || f.others == 0 {
		t.Errorf("%d bytes of segments are those of a library that has none, %d of others", f.segments, f.others)
	}
}

func TestAfterALateAttachTotalsAreTorchsAndBlocksThoseSince(t *testing.T) {
	target := startTorchsBlocks(t)
	target.do("hold weights 30 1000 0")
	target.do("hold activations 3 3000000 0")
	before := blocksTotals(t, target)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	awaitBlocks(t, s)
	if f := mustFigure(t, s, callsForTorch); f.allocated != growth.Unknown || f.blocks != 0 {
		t.Errorf("before the first block since the attach: %+v", f)
	}
	target.do("hold weights 5 4096 0")
	f, torch := mustFigure(t, s, callsForTorch), blocksTotals(t, target)
	if texts := f.misfits(torch); len(texts) > 0 || f.blocks != torch.Allocated-before.Allocated {
		t.Errorf("%q; blocks of %d bytes since the attach, want %d", texts, f.blocks, torch.Allocated-before.Allocated)
	}
	target.do("free weights 20 0") // older ones
	if texts := mustFigure(t, s, callsForTorch).misfits(blocksTotals(t, target)); len(texts) > 0 {
		t.Errorf("after blocks of before the attach were freed: %q", texts)
	}
}

func TestWhatALineHoldsOfAGPUIsSummed(t *testing.T) {
	target := startTorchsBlocks(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	awaitBlocks(t, s)
	target.do("hold weights 6 1000 0")
	target.do("hold activations 2 5000 0")
	target.do("free weights 2 0")
	source := tracertest.Source("blocks.py")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	line := 1 + slices.Index(strings.Split(string(text), "\n"), `        of.held["weights"].append(of.malloc(size))`)
	now := snapshot(t, s)
	if got := heldThrough(now, growth.KindCudaBlock, source, line); got != 4*1024 {
		t.Errorf("blocks of %d bytes by line %d, want 4096", got, line)
	}
	if got := heldThrough(now, growth.KindCudaSegment, source, line); got != 2<<20 {
		t.Errorf("segments of %d bytes for blocks of line %d, want 2097152", got, line)
	}
	if got := heldThrough(now, growth.KindCudaBlock, source, line+1); got != 0 {
		t.Errorf("blocks of %d bytes by the line below", got)
	}
}

func TestWhatIsPinnedAndWhatOthersAllocateIsToldApart(t *testing.T) {
	target := startPythonProgram(t, "cuda.py", libcuda(t))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	for _, orders := range []string{"hold hostalloc 3 8192", "hold malloc 2 4096", "hold create 1 2097152"} {
		target.do(orders)
	}
	mine, others := mustFigure(t, s, callsForTorch), mustFigure(t, s, "libtorch_cuda")
	if mine.pinned != 3*8192 || mine.pinnedRAM != 3*8192 || mine.segments != 2*4096+2<<20 || mine.others != 0 {
		t.Errorf("called from ctypes: %+v", mine)
	}
	if others.pinned != 0 || others.segments != 0 || others.others != mine.segments {
		t.Errorf("called from another library: %+v", others)
	}
}

func TestTheDriverAndTheContextAreComparedWithWhatNVMLCounts(t *testing.T) {
	f := gpuFigures{segments: 700, others: 50}
	for used, want := range map[int64]float64{1000: 0, 1250: 0.2, 800: 0.25} {
		if got := f.apart(250, used); math.Abs(got-want) > 1e-9 {
			t.Errorf("of %d bytes that are used %g is missing, want %g", used, got, want)
		}
	}
}

func TestWhereNVMLDoesNotListTheProcessItsGPUsAreTakenInstead(t *testing.T) {
	moment := func(process int64, gpus ...int64) growth.TreeSample {
		sample := growth.UnknownSample()
		sample.GPUUsed = process
		m := growth.TreeSample{Processes: []growth.ProcessSample{{PID: 1, Sample: sample}}}
		for i, used := range gpus {
			m.GPUs = append(m.GPUs, growth.GPUSample{Index: i, Instance: -1, Used: used, Total: 80000})
		}
		return m
	}
	for _, c := range []struct {
		before, now growth.TreeSample
		want        int64
		by          string
	}{
		{moment(growth.Unknown, 100), moment(4000, 5000), 4000, "the process"},
		{moment(growth.Unknown, 100, 7), moment(growth.Unknown, 5000, 7), 4900, "all GPUs"},
	} {
		if got, by, err := usedOnGPUs(c.before, c.now); err != nil || got != c.want || !strings.HasPrefix(by, c.by) {
			t.Errorf("%d by %s, %v, want %d by %s", got, by, err, c.want, c.by)
		}
	}
	for _, now := range []growth.TreeSample{moment(growth.Unknown), moment(growth.Unknown, growth.Unknown), moment(growth.Unknown, 5, 6)} {
		if got, by, err := usedOnGPUs(moment(growth.Unknown, 100), now); err == nil {
			t.Errorf("%d bytes by %s are told of %+v", got, by, now.GPUs)
		}
	}
}
