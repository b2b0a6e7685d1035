package report

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/google/pprof/profile"
)

// A flameTree is a function as it is called from one place. The sums are its own at first, and those of all that it calls once sum
// was called.
type flameTree struct {
	name              string
	resident, objects float64
	owners            []ownerSum
	children          []*flameTree
}

type ownerSum struct {
	owner             string
	resident, objects float64
}

// A flameGrower makes a tree of samples.
type flameGrower struct {
	at    map[call]*flameTree
	texts map[*profile.Location][]string
	most  int // functions in the tree: what they call beyond that counts as their own
}

// A call is what leads from one function to the next.
type call struct {
	from *flameTree
	name string
}

// follow gives the function of that name that is called from another.
func (g *flameGrower) follow(from *flameTree, name string) *flameTree {
	c, ok := g.at[call{from, name}]
	switch {
	case ok:
		return c
	case len(g.at) >= g.most:
		return from
	}
	c = &flameTree{name: name}
	g.at[call{from, name}] = c
	from.children = append(from.children, c)
	return c
}

// add adds a sample, whose outermost frame is called from at.
func (g *flameGrower) add(at *flameTree, s *profile.Sample, resident, objects float64) {
	left := deepestStack
	for _, l := range slices.Backward(s.Location) {
		frames, ok := g.texts[l]
		if !ok {
			frames = frameTexts(l)
			g.texts[l] = frames
		}
		for _, frame := range slices.Backward(frames) {
			if left--; left >= 0 {
				at = g.follow(at, frame)
			}
		}
		if left <= 0 {
			break
		}
	}
	at.resident += resident
	at.objects += objects
	at.give(ownerSum{label(s, "owner"), resident, objects})
}

// mostOwners of a function are told apart; the others count as one.
const mostOwners = 64

func (t *flameTree) give(sum ownerSum) {
	if len(t.owners) >= mostOwners {
		sum.owner = "other"
	}
	i := slices.IndexFunc(t.owners, func(o ownerSum) bool { return o.owner == sum.owner })
	if i < 0 {
		t.owners = append(t.owners, sum)
		return
	}
	t.owners[i].resident += sum.resident
	t.owners[i].objects += sum.objects
}

// join takes over what belongs to whom.
func (t *flameTree) join(c *flameTree) {
	for _, sum := range c.owners {
		t.give(sum)
	}
}

// owner is to whom most belongs.
func (t *flameTree) owner() string {
	if len(t.owners) == 0 {
		return ""
	}
	return slices.MaxFunc(t.owners, func(a, b ownerSum) int {
		return cmp.Or(cmp.Compare(a.resident, b.resident), cmp.Compare(a.objects, b.objects), cmp.Compare(b.owner, a.owner))
	}).owner
}

// A shrinkage is the stacks that hold less than before.
type shrinkage struct {
	stacks int
	bytes  float64
}

// sum leaves out what shrank, and sums each function with all that it calls. The depth is bounded by deepestStack.
func (t *flameTree) sum() shrinkage {
	var shrunk shrinkage
	if t.resident < 0 {
		shrunk = shrinkage{1, t.resident}
	}
	t.resident, t.objects = max(t.resident, 0), max(t.objects, 0)
	for i := range t.owners {
		t.owners[i].resident, t.owners[i].objects = max(t.owners[i].resident, 0), max(t.owners[i].objects, 0)
	}
	for _, c := range t.children {
		more := c.sum()
		shrunk.stacks += more.stacks
		shrunk.bytes += more.bytes
		t.resident += c.resident
		t.objects += c.objects
		t.join(c)
	}
	return shrunk
}

// count is how many functions there are that hold anything.
func (t *flameTree) count() int {
	if t.resident <= 0 && t.objects <= 0 {
		return 0
	}
	n := 1
	for _, c := range t.children {
		n += c.count()
	}
	return n
}

// largest are so many of the largest nodes, by their share of bytes or of objects, without those that are too small to be seen. A
// node is never without its callers: they are as large, and come first.
func (t *flameTree) largest(most int) map[*flameTree]bool {
	all := []*flameTree{t}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].children...)
	}
	weight := func(n *flameTree) float64 {
		return max(n.resident/max(t.resident, 1), n.objects/max(t.objects, 1))
	}
	slices.SortStableFunc(all, func(a, b *flameTree) int { return cmp.Compare(weight(b), weight(a)) })
	shown := make(map[*flameTree]bool)
	for _, n := range all[:min(most, len(all))] {
		if weight(n) >= smallestNode {
			shown[n] = true
		}
	}
	return shown
}

// MarshalJSON writes [name, owner, resident, objects, [children]].
func (n flameNode) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

func (n *flameNode) append(to []byte) []byte {
	to = append(to, '[')
	for _, value := range []int64{int64(n.Name), int64(n.Owner), n.Resident, n.Objects} {
		to = append(strconv.AppendInt(to, value, 10), ',')
	}
	if len(n.Children) == 0 {
		to[len(to)-1] = ']'
		return to
	}
	to = append(to, '[')
	for i := range n.Children {
		to = append(n.Children[i].append(to), ',')
	}
	to[len(to)-1] = ']'
	return append(to, ']')
}
