package tracer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestTensors compares live tensors with those that a PyTorch program holds.
func TestTensors(t *testing.T) {
	t.Run("live tensors are those that the program holds", testTensorsLiveTensorsThose)
	t.Run("probes follow the import of torch", testTensorsProbesFollowImport)
	t.Run("program without torch and a GPU has no source of them", testTensorsProgramWithoutTorch)
	t.Run("functions in libraries of any name", testTensorsFunctionsLibrariesAny)

	withOneProgram(t, []tensorCase{
		{"source tensor alone leaves the heap without sites", testTensorsSourceTensorAlone},
		{"gap in probing makes totals unknown", testTensorsGapProbingMakes},
		{"closed probe attaches when it is opened", testTensorsClosedProbeAttaches},
		{"detach leaves nothing in the kernel", testTensorsDetachLeavesNothing},
	})
}

type tensorCase struct {
	name string
	test func(t *testing.T, h tensorHolder)
}

// withOneProgram runs tests with one program, one after the other. The memory that one leaves is
// older than the trace of the next.
func withOneProgram(t *testing.T, cases []tensorCase) {
	t.Helper()
	h := startTensors(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			h.Do("age")
			c.test(t, h)
		})
	}
}

// A tensorHolder runs testdata/tensors.py.
type tensorHolder struct{ gpuProgram }

func startTensors(t *testing.T, arguments ...string) tensorHolder {
	t.Helper()
	return tensorHolder{startPythonProgram(t, "tensors.py", arguments...)}
}

// alive returns how many tensors made since the start the program holds, and their bytes.
func (h tensorHolder) alive() (count, bytes int64) {
	h.t.Helper()
	scan(h.t, h.Do("alive")[0], "%d %d", &count, &bytes)
	return count, bytes
}

func tensorsOf(s *tracer.Session) (count, bytes int64) {
	sample := s.Sample().Processes[0]
	return sample.Tensors, sample.TensorBytes
}

// mustHoldTensors wants the sample to agree with the program.
func mustHoldTensors(t *testing.T, s *tracer.Session, h tensorHolder) {
	t.Helper()
	wantCount, wantBytes := h.alive()
	if count, bytes := tensorsOf(s); count != wantCount || bytes != wantBytes {
		t.Errorf("%d tensors of %d bytes, want %d of %d", count, bytes, wantCount, wantBytes)
	}
}

// A tensorWay is how tensors are probed.
type tensorWay struct {
	mode    probe.Mode
	sources []string
}

var tensorWays = []tensorWay{
	{probe.Session, nil},
	{probe.Multi, nil},
	{probe.Single, nil},
	{probe.Session, []string{"tensor"}},
	{probe.Single, []string{"tensor", "mapping"}},
}

func testTensorsLiveTensorsThose(t *testing.T) {
	t.Parallel()
	h := startTensors(t)
	h.Do("keep 50 5000", "fill 5 300000")
	for _, way := range tensorWays { // tensors from before are old in each
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			h.t = t
			h.Do("age")
			s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Mode: way.mode, Sources: way.sources})
			h.Do("forget")
			mustCountOnce(t, h, s)

			// an exception cannot pass a return probe: it would end the program
			printed := h.Do("keep 20 3000", "fail 10")
			if len(printed) == 0 || !strings.Contains(printed[0],
				"can't allocate memory: you tried to allocate 281474976710656 bytes") {
				t.Errorf("the program prints %q", printed)
			}

			for _, orders := range [][]string{
				{},
				{"keep 1000 777", "churn 5000 777", "keep 3 0"},
				{"fill 4 10000000", "churn 5 10000000"},
				{"drop 300", "view"},
				{"forget", "churn 100 5000", "keep 70 5000"},
				{"train 40"},
			} {
				h.Do(orders...)
				mustHoldTensors(t, s, h)
			}
			mustLoseNothing(t, s)
		})
	}
}

// passesThrough reports whether a stack goes through a function.
func passesThrough(stack *growth.Stack, function string) bool {
	return slices.ContainsFunc(stack.Frames,
		func(f growth.Frame) bool { return f.Function == function })
}

// ofTensors sums the memory of stacks through alloc_cpu, by kind, line of tensors.py and innermost
// function.
func ofTensors(snapshot *growth.Snapshot) amounts {
	sums := make(amounts)
	for _, h := range snapshot.Holdings {
		isMapping := h.Kind == growth.KindMmap && h.AllocObjects > 0 // by the program, not by malloc
		if h.InuseObjects == 0 && !isMapping || !passesThrough(h.Stack, "c10::alloc_cpu") {
			continue
		}

		name := fmt.Sprint(h.Kind, " ", h.Stack.Frames[0].Function)
		for _, f := range h.Stack.Frames {
			if f.Python {
				name += fmt.Sprintf(" %s:%d", f.Function, f.Line)
				break
			}
		}

		sum := sums[name] // an entry also where nothing is left
		sums[name] = [2]int64{sum[0] + int64(h.InuseObjects), sum[1] + h.InuseBytes}
	}
	return sums
}

// mustCountOnce wants memory that PyTorch asks of malloc for a tensor, or malloc of the kernel, to
// count for the tensor alone, under its Python line. The program holds no tensors.
func mustCountOnce(t *testing.T, h tensorHolder, s *tracer.Session) {
	t.Helper()
	want := amounts{
		fmt.Sprintf("heap c10::alloc_cpu Holder.order_keep:%d", lineWith(t, "tensors.py", "keeps")): {500, 500 * 3000},
		fmt.Sprintf("heap c10::alloc_cpu Holder.order_fill:%d", lineWith(t, "tensors.py", "fills")): {
			2, 2 * 40_000_000,
		},
	}

	// the large ones are mapped always
	h.Do("churn 100 3000", "keep 500 3000", "fill 2 40000000", "churn 5 40000000")
	taken := snapshot(t, s)
	mustAmount(t, "through alloc_cpu", ofTensors(taken), want)
	if bytes := residentThrough(taken, "Holder.order_fill"); bytes < 79_900_000 ||
		bytes > 80_100_000 {
		t.Errorf("%d bytes of the tensors that were written are resident, want 80,000,000", bytes)
	}
}

// Only the allocation sites of tensors are known of the heap then.
func testTensorsSourceTensorAlone(t *testing.T, h tensorHolder) {
	_, s := openOn(t, h, tracer.Options{Interval: 1, Sources: []string{"tensor"}})

	h.Do("fill 100 100000", "train 1")
	var known, unknown, rss, sum int64
	taken := snapshot(t, s)
	for _, holding := range taken.Holdings {
		sum += holding.ResidentBytes
		switch {
		case holding.Kind == growth.KindHeap && holding.Stack.Root == unknownSite:
			unknown += holding.ResidentBytes
		case holding.Kind == growth.KindHeap && passesThrough(holding.Stack, "c10::alloc_cpu"):
			known += holding.ResidentBytes
		case holding.Kind == growth.KindHeap, holding.Kind == growth.KindRetained:
			t.Errorf("%s: %d bytes of %s", holding.Stack.Root, holding.ResidentBytes, holding.Kind)
		}
	}

	for _, r := range taken.Residents {
		rss += r.RSS
	}
	if known < 9_900_000 || unknown == 0 || sum != rss {
		t.Errorf(
			"%d bytes are tensors', %d of the heap have no allocation site, and %d of %d are in rows",
			known, unknown, sum, rss)
	}
}

// residentThrough is the part of the heap that stacks through a function have in memory.
func residentThrough(snapshot *growth.Snapshot, function string) (bytes int64) {
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindHeap && passesThrough(h.Stack, function) {
			bytes += h.ResidentBytes
		}
	}
	return bytes
}

// tensorFunctions returns a line for each function that was found in the first target.
func tensorFunctions(s *tracer.Session) []string {
	return tracer.Targets(s)[0].Tensors.Status().Details
}

func mustNotKnowTensors(t *testing.T, s *tracer.Session) {
	t.Helper()
	if count, bytes := tensorsOf(s); count != growth.Unknown || bytes != growth.Unknown {
		t.Errorf("%d tensors of %d bytes, want them unknown", count, bytes)
	}
}

// awaitTensors waits until the session knows of tensors. It finds loaded libraries in the
// background.
func awaitTensors(t testing.TB, s *tracer.Session) {
	t.Helper()
	eventually(t, "tensors are known", func() bool {
		count, _ := tensorsOf(s)
		return count != growth.Unknown
	})
}

func testTensorsProbesFollowImport(t *testing.T) {
	h := startTensors(t, "late")
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"tensor"}})

	mustNotKnowTensors(t, s)
	h.Do("import")
	awaitTensors(t, s)
	h.Do("age", "keep 300 1234", "churn 10 1234", "forget")
	mustHoldTensors(t, s, h)
	if said := sourceOf(t, s, "tensor"); !said.Attached || said.Reason != "" ||
		!strings.Contains(said.Details[0], "c10::free_cpu in /") {
		t.Errorf("after the import: %+v", said)
	}
}

// Frees while the probes are closed stay unknown.
func testTensorsGapProbingMakes(t *testing.T, h tensorHolder) {
	_, s := openOn(t, h, exact)

	h.Do("keep 10 1000")
	mustHoldTensors(t, s, h)
	tensors := tracer.Targets(s)[0].Tensors
	must(t, tensors.Pause())

	mustNotKnowTensors(t, s)
	before := counted(t, s, bpf.CountTensorEntries)
	h.Do("keep 10 1000")
	if counted(t, s, bpf.CountTensorEntries) != before {
		t.Error("closed probes have seen calls")
	}
	must(t, tensors.Open())

	h.Do("fill 20 1000")
	mustNotKnowTensors(t, s)
	if got := ofTensors(snapshot(t, s))[fmt.Sprintf("heap c10::alloc_cpu Holder.order_fill:%d",
		lineWith(t, "tensors.py", "fills"))]; got != [2]int64{20, 20_000} {
		t.Errorf("after the second opening %d are held, want 20 of 20000 bytes", got)
	}
}

// A program that waits for its baseline holds its probes back.
func testTensorsClosedProbeAttaches(t *testing.T, h tensorHolder) {
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"mapping", "fault"}})

	p := source.NewTensors(tracer.Kernel(s), s.Process)
	mapped, err := s.Process.Maps()
	must(t, errors.Join(err, p.Pause()))

	if p.Update(mapped); p.Active() || !p.Status().Attached {
		t.Errorf("found while it is closed: active %t, %+v", p.Active(), p.Status())
	}
	if err := p.Open(); err != nil || !p.Active() {
		t.Errorf("opened: active %t, %v", p.Active(), err)
	}
	if err := p.Close(); err != nil || p.Active() {
		t.Errorf("shut down: active %t, %v", p.Active(), err)
	}
}

func testTensorsDetachLeavesNothing(t *testing.T, h tensorHolder) {
	other := startTensors(t)
	s := open(t, tracer.Options{PID: other.PID(), Interval: 1, Sources: []string{"tensor"}})

	mustAttach(t, s, h.PID())
	h.Do("keep 30 100")
	other.Do("keep 7 100")
	if n := entries(t, s, h.PID())["tensors"]; n != 30 {
		t.Errorf("the kernel has %d tensors, want 30", n)
	}

	mustHoldTensors(t, s, other)
	mustDetach(t, s, h.PID())
	mustHaveNoEntries(t, s, h.PID())
	mustHoldTensors(t, s, other)
}

func testTensorsProgramWithoutTorch(t *testing.T) {
	_, s := openOn(t, startStepper(t), tracer.Options{})
	for _, said := range s.Sources() {
		if said.Name == "tensor" || said.Name == "cuda" {
			t.Errorf("%+v", said)
		}
	}
	mustNotKnowTensors(t, s)
}

func testTensorsFunctionsLibrariesAny(t *testing.T) {
	usual := tracertest.Build(t, "c10.cc", "-shared", "-fPIC")
	others := tracertest.Build(t, "c10.cc", "-shared", "-fPIC", "-DPARAMETERS")
	without := tracertest.Build(t, "c10.cc", "-shared", "-fPIC", "-DWITHOUT")
	h, s := openOn(t, startTensors(t, "late"), exact)

	h.Do("library " + without + " 5 100")
	eventually(t, "a library is found", func() bool {
		return strings.Contains(tracer.Targets(s)[0].Tensors.Status().Reason,
			"find c10::free_cpu in "+without+": it exports no c10::alloc_cpu and c10::free_cpu")
	})

	if said := sourceOf(t, s, "tensor"); said.Attached {
		t.Errorf("%+v", said)
	}

	var want int64
	for _, library := range []string{
		usual, others, copied(t, usual, "libtorch_all.so"),
		copied(t, others, "libc10.so.2"),
	} {
		before := len(tensorFunctions(s))
		h.Do("library " + library + " 0 0")
		eventually(t, "a library is found", func() bool { return len(tensorFunctions(s)) > before })
		h.Do("library " + library + " 100 5000")
		want += 100
		if count, bytes := tensorsOf(s); count != want || bytes != 5000*want {
			t.Errorf("%s: %d tensors of %d bytes, want %d of 5000", library, count, bytes, want)
		}
	}

	if said := sourceOf(t, s, "tensor"); !said.Attached || said.Reason != "" ||
		len(said.Details) != 8+2 {
		t.Errorf("%+v", said)
	}
}
