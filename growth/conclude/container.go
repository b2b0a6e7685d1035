package conclude

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

// A Container is the memory that the cgroup of the job is charged with at two moments. Its rows sum
// to the charge at both.
type Container struct {
	First, Last *growth.Container
	// Rows by kind, in the order of the kinds, and of a kind the largest first.
	Rows []ContainerRow
	all  []ContainerRow // before small ones are summed
}

// A ContainerRow is a part of the memory of a container at the two moments, in bytes.
type ContainerRow struct {
	growth.ContainerRow // Bytes are End
	Start, End          int64
	// InJob: a traced process has the memory, or holds the file.
	InJob bool
}

// Delta is the change in bytes.
func (r *ContainerRow) Delta() int64 { return r.End - r.Start }

// grows reports whether memory grows much that the kernel does not take back.
func (r *ContainerRow) grows() bool {
	return !r.Kind.IsReclaimable() && r.Delta() >= minOutsideGrowth
}

// size orders the rows of a kind.
func (r *ContainerRow) size() int64 { return max(r.Start, r.End) }

// maxContainerRows bounds the rows of a kind. The smaller ones are one row.
const maxContainerRows = 8

var containerKinds = []growth.ContainerKind{
	growth.ContainerAnonymous, growth.ContainerForked, growth.ContainerShared, growth.ContainerCache,
	growth.ContainerReclaimable, growth.ContainerSlab, growth.ContainerPageTables,
	growth.ContainerStacks, growth.ContainerSockets, growth.ContainerKernel, growth.ContainerRest,
}

// containerOf compares the memory of the container at both moments; nil: the job is in none.
func containerOf(t *Trace) *Container {
	first, last := t.Container.First, t.Container.Last
	if first == nil || last == nil {
		return nil
	}

	traced := make(map[int]bool)
	for _, p := range t.History.Processes {
		traced[p.PID] = p.Traced
	}
	type key struct {
		growth.ContainerKind
		Key string
	}
	index := make(map[key]int)
	var rows []ContainerRow
	add := func(of growth.ContainerRow, side func(*ContainerRow) *int64) {
		k := key{of.Kind, of.Key}
		i, ok := index[k]
		if !ok {
			i = len(rows)
			index[k] = i
			rows = append(rows, ContainerRow{ContainerRow: of, InJob: traced[of.PID]})
		}
		*side(&rows[i]) += of.Bytes
	}
	for _, of := range last.Rows {
		add(of, func(r *ContainerRow) *int64 { return &r.End })
	}
	for _, of := range first.Rows {
		add(of, func(r *ContainerRow) *int64 { return &r.Start })
	}

	c := &Container{First: first, Last: last, all: rows}
	for _, kind := range containerKinds {
		c.Rows = append(c.Rows, rowsOf(rows, kind)...)
	}
	return c
}

// rowsOf are the rows of one kind: the largest, one for the others in the job and one for the others
// outside, and the rest.
func rowsOf(all []ContainerRow, kind growth.ContainerKind) (rows []ContainerRow) {
	var inJob, outside, rest ContainerRow
	for _, r := range all {
		switch {
		case r.Kind != kind:
		case r.Key == "":
			rest.add(&r)
		default:
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b ContainerRow) int { return cmp.Compare(b.size(), a.size()) })
	small := rows[min(len(rows), maxContainerRows):]
	for i := range small {
		if small[i].InJob {
			inJob.addSmall(&small[i])
		} else {
			outside.addSmall(&small[i])
		}
	}

	rows = slices.Clone(rows[:len(rows)-len(small)])
	for _, sum := range []ContainerRow{inJob, outside, rest} {
		if sum.Start != 0 || sum.End != 0 {
			sum.Kind = kind
			rows = append(rows, sum)
		}
	}
	return rows
}

func (r *ContainerRow) add(other *ContainerRow) {
	r.Start += other.Start
	r.End += other.End
}

// addSmall adds a row to a sum, which has a process if all of its rows have the same one.
func (r *ContainerRow) addSmall(other *ContainerRow) {
	switch r.Count {
	case 0:
		r.PID, r.Name, r.InJob = other.PID, other.Name, other.InJob
	default:
		if r.PID != other.PID {
			r.PID, r.Name = 0, ""
		}
	}
	r.Count += max(1, other.Count)
	r.add(other)
}

// minContainerShare is the share of the charge from which memory outside of the job is worth a
// word.
const minContainerShare = 0.2

// Beside are the kinds of memory outside of the traced processes that are a large part of the
// container, or grow much: the sum of each, with the largest row's names. Those that grow are
// first, and then the largest.
func (c *Container) Beside() (sums []ContainerRow) {
	for _, kind := range containerKinds {
		if kind == growth.ContainerForked || kind == growth.ContainerRest {
			continue
		}
		var sum, largest, fastest ContainerRow
		for _, r := range c.Rows {
			if r.Kind != kind || r.InJob {
				continue
			}
			sum.Start += r.Start
			sum.End += r.End
			if r.size() > largest.size() {
				largest = r
			}
			if r.Delta() > fastest.Delta() {
				fastest = r
			}
		}
		isLarge := float64(sum.End) >= minContainerShare*float64(c.Last.Charged)
		sum.Kind = kind
		switch {
		case sum.End <= 0 || !isLarge && !sum.grows():
			continue
		case sum.grows():
			sum.ContainerRow = fastest.ContainerRow
		default:
			sum.ContainerRow = largest.ContainerRow
		}
		sum.Kind = kind
		sums = append(sums, sum)
	}
	slices.SortStableFunc(sums, func(a, b ContainerRow) int {
		switch {
		case a.grows() && !b.grows():
			return -1
		case b.grows() && !a.grows():
			return 1
		}
		return cmp.Compare(b.size(), a.size())
	})
	return sums
}
