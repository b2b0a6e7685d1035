package trend

import (
	"maps"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// An origin is the place that memory of several stacks comes from. A runtime compiles a function
// again when it gets hot, so that one call site has a stack for each version of the code. It maps
// its heap from wherever an allocation or a collection runs.
type origin struct {
	pid  int
	kind growth.Kind
	gpu  string
	// isInBursts is set if its calls were sampled in bursts.
	isInBursts bool
	// frames are the names that all of its stacks have; of a runtime's heap, the runtime.
	frames string
}

// runtimes are the runtimes that files belong to, by path.
type runtimes map[string]growth.Runtime

func (r runtimes) of(m *growth.Module) growth.Runtime {
	if m == nil || m.Path == growth.ModuleAnonymous {
		return ""
	}
	runtime, ok := r[m.Path]
	if !ok {
		runtime = growth.RuntimeOf(m.Path)
		r[m.Path] = runtime
	}
	return runtime
}

// originOf returns the origin of a stack's memory; false: the stack is judged by itself.
func (r runtimes) originOf(h *stackSeries) (o origin, ok bool) {
	o = origin{
		pid: h.stack.PID, kind: h.kind, gpu: h.gpu, isInBursts: h.evidence() != nil,
	}
	frames := growth.WithoutAllocator(h.stack.Frames)
	if len(frames) == 0 {
		return o, false
	}
	if runtime := r.of(frames[0].Module); h.kind == growth.KindMmap && runtime != "" {
		o.frames = string(runtime)
		return o, true
	}

	var names strings.Builder
	isBelow := true // the first generated code
	for i := range frames {
		f := &frames[i]
		isGenerated := f.Module != nil && f.Module.Path == growth.ModuleAnonymous
		isBelow = isBelow && !isGenerated
		if isGenerated && !f.IsOwnNative() || !isBelow && r.of(f.Module) != "" {
			continue
		}
		names.WriteString(f.Function + "\x00" + f.File + "\x00" + strconv.Itoa(f.Line) + "\x00")
	}
	o.frames = names.String()
	return o, !isBelow
}

// judgeOrigins judges the stacks of each origin together: each of them that grew gets the trend of
// all.
func (r *snapshotRange) judgeOrigins(stacks []stackSeries, trends []StackTrend, risk float64) {
	known := make(runtimes)
	members := make(map[origin][]int)
	for i := range stacks {
		if o, ok := known.originOf(&stacks[i]); ok {
			members[o] = append(members[o], i)
		}
	}
	maps.DeleteFunc(members, func(_ origin, of []int) bool { return len(of) < 2 })

	for o, all := range r.sumsOf(stacks, members) {
		together := r.judge(all, risk)
		if together.Trend == growth.TrendReplaced {
			continue
		}
		for _, i := range members[o] {
			if t := &trends[i]; t.Growth > 0 {
				t.Trend, t.Objects, t.Now = together.Trend, 0, 0
				t.Undecided, t.Longer = together.Undecided, together.Longer
				t.evidence = together.evidence
			}
		}
	}
}

// sumsOf adds up the series of the stacks of each origin, in one pass over the snapshots.
func (r *snapshotRange) sumsOf(
	stacks []stackSeries, members map[origin][]int,
) map[origin]*stackSeries {
	sums := make(map[origin]*stackSeries, len(members))
	origins := make(map[growth.Key]origin)
	for o, of := range members {
		first := &stacks[of[0]]
		sums[o] = &stackSeries{stack: first.stack, kind: first.kind}
		for _, i := range of {
			origins[growth.KeyOf(stacks[i].stack, stacks[i].kind, stacks[i].gpu)] = o
		}
	}

	for at, s := range r.snapshots {
		holdings := make(map[origin]*growth.Holding, len(sums))
		for o := range sums {
			holdings[o] = &growth.Holding{}
		}
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if o, ok := origins[h.Key()]; ok {
				addHolding(holdings[o], h)
			}
		}
		for o, all := range holdings {
			r.add(sums[o], at, all)
		}
	}
	return sums
}

// addHolding adds the memory of a stack to the memory of its origin.
func addHolding(all, h *growth.Holding) {
	all.InuseObjects += h.InuseObjects
	all.InuseBytes += h.InuseBytes
	all.Variance += h.Variance
	all.Samples += h.Samples
	all.Births = append(all.Births, h.Births...)

	switch {
	case h.Evidence == nil:
	case all.Evidence == nil:
		all.Evidence = new(*h.Evidence)
	default:
		all.Evidence.Join(h.Evidence)
	}
}
