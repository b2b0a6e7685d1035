package compare

import (
	"cmp"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/units"
)

// A comparison is two sides, stack by stack.
type comparison struct {
	before, after *side
	// change of what both hold, where they are moments of one trace, in which an object may be at both; nil: they are independent.
	change func(key string) amount
	// wholes tells that the sides are the memory that the kernel counts, or the driver of a GPU: their sum has no error.
	counted bool
	// runs tells that the sides are paces of two runs, which differ even where the program is the same.
	ofRuns bool
}

// A change is one thing at both sides, in amounts.
type change struct{ before, after, change amount }

func (c *change) add(more change) {
	c.before.add(more.before)
	c.after.add(more.after)
	c.change.add(more.change)
}

func (c *comparison) of(key string) change {
	out := change{before: c.before.of(key, c.after.sites[key]), after: c.after.of(key, c.before.sites[key])}
	if c.change != nil {
		out.change = c.change(key)
	}
	return out
}

// A row is what becomes a row of the result.
type row struct {
	site                  *site // of the side that holds more
	before, after, change estimate
	// slack is the part of the larger side below which a change is none, however well it is known.
	minChange float64
}

func (c *comparison) measure(of change, h *site) row {
	r := row{site: h, before: of.before.estimate().times(c.before.per), after: of.after.estimate().times(c.after.per)}
	r.change = r.after.minus(r.before)
	if c.ofRuns {
		r.minChange = minChangeShare
	}
	if c.change != nil {
		r.change = of.change.estimate()
	}
	return r
}

// fill writes the owners, the stacks and the total into the result.
func (c *comparison) fill(out *Result) {
	var rows, owners []row
	var all change
	sums := make(map[string]*change)
	for _, key := range c.keys() {
		of, h := c.of(key), c.shown(key)
		if r := c.measure(of, h); r.isVisible() {
			rows = append(rows, r)
		}
		if sums[h.component] == nil {
			sums[h.component] = new(change)
		}
		sums[h.component].add(of)
		all.add(of)
	}
	for owner, sum := range sums {
		if r := c.measure(*sum, &site{component: owner}); r.isVisible() {
			owners = append(owners, r)
		}
	}
	sortRows(rows)
	sortRows(owners)
	out.Components, out.Stacks = []ComponentRow{}, []StackRow{}
	for _, r := range owners {
		out.Components = append(out.Components, ComponentRow{Component: units.Printable(r.site.component), Difference: r.difference()})
	}
	for _, r := range rows {
		out.Stacks = append(out.Stacks, r.stackRow())
	}
	total := c.measure(all, nil)
	if c.counted {
		total.before, total.after, total.change = total.before.certain(), total.after.certain(), total.change.certain()
	}
	out.Total = total.difference()
}

// isSome tells that there is something on either side.
func (r row) isVisible() bool {
	return math.Abs(r.before.value) >= 0.5 || math.Abs(r.after.value) >= 0.5
}

func (c *comparison) keys() []string {
	var keys []string
	for key := range c.before.sites {
		keys = append(keys, key)
	}
	for key := range c.after.sites {
		if c.before.sites[key] == nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys) // sums of floating-point numbers depend on their order
	return keys
}

// shown is the holder of the side that holds more.
func (c *comparison) shown(key string) *site {
	before, after := c.before.sites[key], c.after.sites[key]
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	case math.Abs(before.held.estimate().value)*c.before.per > math.Abs(after.held.estimate().value)*c.after.per:
		return before
	}
	return after
}

// sortRows puts the largest change that is proven first, then the largest.
func sortRows(rows []row) {
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(b.change.proven(), a.change.proven()), cmp.Compare(math.Abs(b.change.value), math.Abs(a.change.value)),
			cmp.Compare(math.Abs(b.after.value), math.Abs(a.after.value)), cmp.Compare(a.site.component, b.site.component),
		)
	})
}

func (r row) difference() Difference {
	return Difference{Before: wholeEstimate(r.before), After: wholeEstimate(r.after), Change: wholeEstimate(r.change), State: r.state()}
}

func (r row) state() State {
	switch {
	case r.change.isZero() || math.Abs(r.change.value) < r.minChange*max(math.Abs(r.before.value), math.Abs(r.after.value)):
		return StateSame
	case r.change.value > 0 && r.before.isZero():
		return StateAppeared
	case r.change.value > 0:
		return StateGrew
	case r.after.isZero():
		return StateVanished
	}
	return StateShrank
}

func (r row) stackRow() StackRow {
	h := r.site
	out := StackRow{Component: units.Printable(h.component), Kind: units.Printable(h.kind), Function: "[stack unknown]", Stack: []string{}, Difference: r.difference()}
	for _, f := range stackOf(h.sample) {
		if len(out.Stack) == 0 {
			out.Function, out.Module = units.Printable(f.Function), units.Printable(f.Module)
		}
		out.Stack = append(out.Stack, f.text())
	}
	return out
}

func stackOf(s *pprof.Sample) []frame {
	var frames []frame
	for _, l := range s.Location {
		frames = append(frames, framesOf(l)...)
	}
	return frames
}

// largest is the magnitude up to which a float64 holds whole numbers exactly.
const maxExact = 1 << 53

// whole is an estimate in whole bytes, none of them beyond largest.
func wholeEstimate(e estimate) Estimate {
	return Estimate{wholeBytes(e.value), wholeBytes(e.low), wholeBytes(e.high)}
}

func wholeBytes(x float64) int64 { return int64(math.Round(min(max(x, -maxExact), maxExact))) }
