package tracer_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A tensorHolder runs testdata/tensors.py.
type tensorHolder struct {
	*tracertest.Target
	t *testing.T
}

func startTensors(t *testing.T, arguments ...string) tensorHolder {
	t.Helper()
	target := tracertest.Start(t, python, append([]string{tracertest.Source("tensors.py")}, arguments...)...)
	target.Await("ready")
	return tensorHolder{target, t}
}

// do gives orders, and what the last of them printed.
func (h tensorHolder) do(orders ...string) (printed []string) {
	h.t.Helper()
	for _, order := range orders {
		h.Say(order)
		printed = h.Await("done")
	}
	return printed
}

// alive is how many tensors of those made since the start the program itself says to hold, and their bytes.
func (h tensorHolder) alive() (count, bytes int64) {
	h.t.Helper()
	printed := h.do("alive")
	if _, err := fmt.Sscan(printed[0], &count, &bytes); err != nil {
		h.t.Fatalf("%q: %v", printed, err)
	}
	return count, bytes
}

func tensorsOf(s *tracer.Session) (count, bytes int64) {
	sample := s.Sample().Processes[0]
	return sample.Tensors, sample.TensorBytes
}

// mustHoldTensors wants the sample to say what the program itself does.
func mustHoldTensors(t *testing.T, s *tracer.Session, h tensorHolder) {
	t.Helper()
	wantCount, wantBytes := h.alive()
	if count, bytes := tensorsOf(s); count != wantCount || bytes != wantBytes {
		t.Errorf("%d tensors of %d bytes, want %d of %d", count, bytes, wantCount, wantBytes)
	}
}

// A tensorWay is how tensors are watched.
type tensorWay struct {
	mode    probe.Mode
	sources []string
}

var tensorWays = []tensorWay{
	{probe.Session, nil}, {probe.Multi, nil}, {probe.Single, nil}, {probe.Session, []string{"tensor"}}, {probe.Single, []string{"tensor", "mapping"}},
}

// eachWay watches one program in all ways, one after the other. What it held before is old in each.
func eachWay(t *testing.T, check func(t *testing.T, h tensorHolder, s *tracer.Session)) {
	t.Helper()
	h := startTensors(t)
	h.do("keep 50 5000", "fill 5 300000")
	for _, way := range tensorWays {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			h.t = t
			h.do("age")
			s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Mode: way.mode, Sources: way.sources})
			check(t, h, s)
			mustLoseNothing(t, s)
		})
	}
}

func TestLiveTensorsAreThoseThatTheProgramHolds(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, h tensorHolder, s *tracer.Session) {
		for _, orders := range [][]string{
			{},
			{"keep 1000 777", "churn 5000 777", "keep 3 0"},
			{"fill 4 10000000", "churn 5 10000000"},
			{"drop 300", "view"},
			{"forget", "churn 100 5000", "keep 70 5000"},
			{"train 40"},
		} {
			h.do(orders...)
			mustHoldTensors(t, s, h)
		}
	})
}

// lineWith is the number of the line of testdata/tensors.py that ends in a comment.
func lineWith(t *testing.T, comment string) int {
	t.Helper()
	raw, err := os.ReadFile(tracertest.Source("tensors.py"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(raw), "# "+comment+"\n")
	if !ok {
		t.Fatalf("no line ends in %q", comment)
	}
	return strings.Count(before, "\n") + 1
}

// passesThrough reports whether a stack goes through a function.
func passesThrough(stack *growth.Stack, function string) bool {
	for _, f := range stack.Frames {
		if f.Function == function {
			return true
		}
	}
	return false
}

// ofTensors sums what stacks through alloc_cpu hold, by kind, line of tensors.py and innermost function.
func ofTensors(snapshot *growth.Snapshot) map[string][2]int64 {
	sums := make(map[string][2]int64)
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
		sum := sums[name]
		sums[name] = [2]int64{sum[0] + int64(h.InuseObjects), sum[1] + h.InuseBytes}
	}
	return sums
}

// What torch asks of malloc for a tensor, and malloc of the kernel, is the tensor's and nothing else.
func TestATensorCountsOnceUnderThePythonLineThatMadeIt(t *testing.T) {
	t.Parallel()
	small, large := lineWith(t, "keeps"), lineWith(t, "fills")
	want := map[string][2]int64{
		fmt.Sprintf("heap c10::alloc_cpu Holder.order_keep:%d", small): {500, 500 * 3000},
		fmt.Sprintf("heap c10::alloc_cpu Holder.order_fill:%d", large): {2, 2 * 40_000_000},
	}
	eachWay(t, func(t *testing.T, h tensorHolder, s *tracer.Session) {
		h.do("forget", "churn 100 3000", "keep 500 3000", "fill 2 40000000", "churn 5 40000000") // the large ones are mapped always
		taken := snapshot(t, s)
		if got := ofTensors(taken); !maps.Equal(got, want) {
			t.Errorf("stacks through alloc_cpu hold %v, want %v (objects, bytes)", got, want)
		}
		if bytes := residentThrough(taken, "Holder.order_fill"); bytes < 79_900_000 || bytes > 80_100_000 {
			t.Errorf("%d bytes of the tensors that were written are resident, want 80,000,000", bytes)
		}
	})
}

// Nothing but the holders of tensors is known of the heap then.
func TestWithSourceTensorAloneTheRestOfTheHeapHasNoHolder(t *testing.T) {
	h := startTensors(t)
	s := open(t, tracer.Options{PID: h.PID(), Interval: 1, Sources: []string{"tensor"}})
	h.do("fill 100 100000", "train 1")
	var known, unknown, rss, sum int64
	taken := snapshot(t, s)
	for _, holding := range taken.Holdings {
		sum += holding.ResidentBytes
		switch {
		case holding.Kind == growth.KindHeap && holding.Stack.Root == unknownHolder:
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
		t.Errorf("%d bytes are tensors', %d of the heap have no holder, and %d of %d are told", known, unknown, sum, rss)
	}
}

// residentThrough is what of the heap stacks through a function have in memory.
func residentThrough(snapshot *growth.Snapshot, function string) (bytes int64) {
	for _, h := range snapshot.Holdings {
		if h.Kind == growth.KindHeap && passesThrough(h.Stack, function) {
			bytes += h.ResidentBytes
		}
	}
	return bytes
}
