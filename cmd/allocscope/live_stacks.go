package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/cmd/allocscope/live"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// mostOfAnOrder is how many stacks the screen gets for each order in which it sorts them.
const mostOfAnOrder = 40

// A gain is what stacks that read alike have gained and hold.
type gain struct {
	stack   *growth.Stack
	kind    growth.Kind
	text    []string
	gained  int64 // bytes
	held    int64 // bytes
	objects float64
}

// gains sums holdings whose stacks read the same.
type gains struct {
	all    []gain
	byText map[string]int
	byID   map[stackKey]int
}

type stackKey struct {
	id   uint64
	pid  int
	kind growth.Kind
}

func (g *gains) of(h *growth.Holding) *gain {
	key := stackKey{h.Stack.ID, h.Stack.PID, h.Kind}
	i, ok := g.byID[key]
	if !ok {
		text := profile.StackText(h.Stack)
		reading := string(h.Kind) + "\n" + strings.Join(text, "\n")
		if i, ok = g.byText[reading]; !ok {
			i = len(g.all)
			g.byText[reading] = i
			g.all = append(g.all, gain{stack: h.Stack, kind: h.Kind, text: text})
		}
		g.byID[key] = i
	}
	return &g.all[i]
}

// stacksOf are the stacks that gained or hold most over a span, by any order of the screen.
func stacksOf(s span, owners *growth.Owners) []live.Stack {
	g := gains{byText: make(map[string]int), byID: make(map[stackKey]int)}
	for i := range s.end.Holdings {
		if h := &s.end.Holdings[i]; h.InuseBytes != 0 {
			to := g.of(h)
			to.gained += h.InuseBytes
			to.held += h.InuseBytes
			to.objects += h.InuseObjects
		}
	}
	for i := range s.start.Holdings {
		if h := &s.start.Holdings[i]; h.InuseBytes != 0 {
			g.of(h).gained -= h.InuseBytes
		}
	}
	var stacks []live.Stack
	for _, i := range g.largest() {
		of := &g.all[i]
		at := of.accumulation()
		stacks = append(stacks, live.Stack{
			Owner: owners.Of(of.stack), Where: []string{words.Where(at), words.WhereShort(at), words.WhereBrief(at)},
			BytesPerMin: summary.BytesPerMin(of.gained, s.elapsed()), Bytes: of.held, Objects: of.objects,
		})
	}
	return stacks
}

// largest are the indices of those that are among the first by gain, bytes or objects.
func (g *gains) largest() []int {
	orders := []func(a, b *gain) int{
		func(a, b *gain) int { return cmp.Compare(b.gained, a.gained) },
		func(a, b *gain) int { return cmp.Compare(b.held, a.held) },
		func(a, b *gain) int { return cmp.Compare(b.objects, a.objects) },
	}
	indices := make([]int, len(g.all))
	for i := range indices {
		indices[i] = i
	}
	var chosen []int
	for _, order := range orders {
		slices.SortFunc(indices, func(a, b int) int { return cmp.Or(order(&g.all[a], &g.all[b]), cmp.Compare(a, b)) })
		chosen = append(chosen, indices[:min(mostOfAnOrder, len(indices))]...)
	}
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// accumulation is what words need to say where it is.
func (g *gain) accumulation() summary.Accumulation {
	a := summary.Accumulation{Kind: g.kind, Function: g.text[0], Stack: g.text}
	if frames := growth.WithoutAllocator(g.stack.Frames); len(frames) > 0 {
		a.Function = frames[0].Function
		if frames[0].Module != nil {
			a.Module = frames[0].Module.Path
		}
	}
	return a
}
