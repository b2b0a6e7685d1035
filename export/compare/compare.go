package compare

import (
	"cmp"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// A comparison has two sides, stack by stack.
type comparison struct {
	before, after *side
	// change is the change of a stack, where the sides are snapshots of one trace and objects may
	// be alive at both. nil: the sides are independent.
	change func(key string) amount
	// counted: the sides sum to a count of the kernel, or of a GPU's driver. These sums have no
	// error.
	counted bool
	// ofRuns: the sides are growth rates of two runs, which differ even if the program is the same.
	ofRuns bool
	// isIncomplete reports whether calls were lost of memory of a kind; nil: none were.
	isIncomplete func(growth.Kind) bool
}

// A change is one thing on both sides, and its change.
type change struct {
	before, after, change amount
	isIncomplete          bool
}

func (c *change) add(more change) {
	c.isIncomplete = c.isIncomplete || more.isIncomplete
	c.before.add(more.before)
	c.after.add(more.after)
	c.change.add(more.change)
}

func (c *comparison) of(key string) change {
	out := change{
		before: c.before.of(key, c.after.sites[key]), after: c.after.of(key, c.before.sites[key]),
	}
	if c.change != nil {
		out.change = c.change(key)
	}

	if c.isIncomplete != nil {
		out.isIncomplete = c.isIncomplete(growth.Kind(c.shown(key).kind))
	}

	return out
}

// A row becomes a row of the result.
type row struct {
	// site is the site of the side that holds more.
	site                  *site // of the side that holds more
	before, after, change estimate
	// minChange is the share of the larger side below which a change does not count, however
	// certain it is.
	minChange float64
	// isIncomplete: calls were lost, so that no interval is exact.
	isIncomplete bool
}

func (c *comparison) measure(of change, h *site) row {
	r := row{
		site: h, before: of.before.estimate().times(c.before.per),
		after: of.after.estimate().times(c.after.per), isIncomplete: of.isIncomplete,
	}
	r.change = r.after.minus(r.before)

	if c.ofRuns {
		r.minChange = minChangeShare
	}

	if c.change != nil {
		r.change = of.change.estimate()
	}

	return r
}

// fill writes the components, the stacks and the total into the result.
func (c *comparison) fill(out *Result) {
	var rows, components []row
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

	for component, sum := range sums {
		if r := c.measure(*sum, &site{component: component}); r.isVisible() {
			components = append(components, r)
		}
	}

	sortRows(rows)
	sortRows(components)
	out.Components, out.Stacks = []ComponentRow{}, []StackRow{}

	for _, r := range components {
		out.Components = append(out.Components, ComponentRow{
			Component: units.Name(r.site.component), Difference: r.difference(),
		})
	}

	for _, r := range rows {
		out.Stacks = append(out.Stacks, r.stackRow())
	}

	total := c.measure(all, nil)
	if c.counted {
		total.before, total.after, total.change = total.before.certain(), total.after.certain(),
			total.change.certain()
		total.isIncomplete = false
	}

	out.Total = total.difference()
}

// isVisible reports whether either side has at least a byte.
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

// shown is the site of the side that holds more.
func (c *comparison) shown(key string) *site {
	before, after := c.before.sites[key], c.after.sites[key]
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	case math.Abs(before.held.estimate().value)*c.before.per >
		math.Abs(after.held.estimate().value)*c.after.per:
		return before
	}

	return after
}

// sortRows puts the largest proven change first, then the largest change.
func sortRows(rows []row) {
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(b.change.proven(), a.change.proven()),
			cmp.Compare(math.Abs(b.change.value), math.Abs(a.change.value)),
			cmp.Compare(math.Abs(b.after.value), math.Abs(a.after.value)),
			cmp.Compare(a.site.component, b.site.component),
		)
	})
}

func (r row) difference() Difference {
	return Difference{
		Before: wholeEstimate(r.before), After: wholeEstimate(r.after),
		Change: wholeEstimate(r.change), State: r.state(), Incomplete: r.isIncomplete,
	}
}

func (r row) state() State {
	switch {
	case r.change.isZero() ||
		math.Abs(r.change.value) <
			r.minChange*max(math.Abs(r.before.value), math.Abs(r.after.value)):
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
	out := StackRow{
		Component: units.Name(h.component), Kind: units.Name(h.kind),
		Function: "[stack unknown]", Stack: []string{}, Difference: r.difference(),
	}
	for _, f := range stackOf(h.sample) {
		if len(out.Stack) == 0 {
			out.Function, out.Module = units.Name(f.Function), units.Name(f.Module)
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

// maxExact is the magnitude up to which a float64 holds every whole number.
const maxExact = 1 << 53

// wholeEstimate rounds an estimate to whole bytes, within maxExact.
func wholeEstimate(e estimate) Estimate {
	return Estimate{wholeBytes(e.value), wholeBytes(e.low), wholeBytes(e.high)}
}

func wholeBytes(x float64) int64 { return int64(math.Round(min(max(x, -maxExact), maxExact))) }
