package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/growth"
)

const (
	// maxProcesses bounds the label sets of processes. A node has fewer ranks than that.
	maxProcesses = 512
	// maxComponents bounds the components; the largest growth comes first. The others are one.
	maxComponents = 10
	// maxParts bounds rows and losses. There are fewer kinds of either.
	maxParts = 32
	// maxLabelBytes of a value, without the ellipsis.
	maxLabelBytes = 128

	otherComponent = "other"
)

// labelOf makes a text fit to be the value of a label.
func labelOf(text string) string {
	return growth.Printable(growth.Truncate(text, maxLabelBytes))
}

// An identity is the labels of a process.
type identity struct{ job, rank, role string }

func (p *Process) identity() identity {
	rank := ""
	if p.Rank >= 0 {
		rank = strconv.Itoa(p.Rank)
	}
	return identity{labelOf(p.Job), rank, labelOf(string(p.Role))}
}

// merge returns the processes by their labels, in order, and how many were left out. Equal labels
// are one series: two of them would make the whole scrape fail.
func merge(all []Process) (merged []labeledProcess, omitted int) {
	index := make(map[identity]int)
	for i := range all {
		p := &all[i]
		id := p.identity()
		at, known := index[id]

		switch {
		case known:
			merged[at].add(p)
		case len(merged) == maxProcesses:
			omitted += max(p.Count, 1)
		default:
			index[id] = len(merged)
			merged = append(merged, labeledProcess{id, *p})
		}
	}

	return merged, omitted
}

// labeledProcess is a process with its labels.
type labeledProcess struct {
	identity
	Process
}

// add adds a process with the same labels: sizes are sums, the most severe verdict counts, and the
// nearest limit.
func (l *labeledProcess) add(p *Process) {
	l.Count += p.Count
	for _, size := range []struct {
		sum   *int64
		added int64
	}{
		{&l.RSS, p.RSS},
		{&l.Anonymous, p.Anonymous},
		{&l.File, p.File},
		{&l.Shmem, p.Shmem},
		{&l.Swap, p.Swap},
	} {
		*size.sum = sum(*size.sum, size.added)
	}

	l.Headroom = l.Headroom.Nearest(p.Headroom)
	if !(l.ToLimit <= p.ToLimit) && !math.IsNaN(p.ToLimit) {
		l.ToLimit = p.ToLimit
	}

	order := cmp.Or(cmp.Compare(p.Verdict.Severity(), l.Verdict.Severity()),
		cmp.Compare(p.Growth, l.Growth)) // NaN is less than all others
	if l.Verdict == "" || order > 0 && p.Verdict != "" {
		l.Verdict, l.Growth, l.GrowthLow, l.GrowthHigh =
			p.Verdict, p.Growth, p.GrowthLow, p.GrowthHigh
	}

	if l.Trace == nil || p.Trace != nil && p.Trace.At.After(l.Trace.At) {
		l.Trace = p.Trace
	}
}

// sum adds sizes. An unknown size adds nothing.
func sum(a, b int64) int64 {
	switch {
	case a == growth.Unknown:
		return b
	case b == growth.Unknown:
		return a
	}
	return a + b
}

// A part is the value of one label.
type part struct {
	label string
	value float64
}

// partsOf returns values by their labels, in the order of these. It leaves out those beyond
// maxParts.
func partsOf[K ~string, V int64 | uint64 | float64](values map[K]V) []part {
	sums := make(map[string]float64)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		label := labelOf(string(key))
		if _, known := sums[label]; known || len(sums) < maxParts {
			sums[label] += float64(values[key])
		}
	}

	parts := make([]part, 0, len(sums))
	for _, label := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, part{label, sums[label]})
	}
	return parts
}

// largestComponents returns the growth of the largest components, and of all others together.
func largestComponents(growths map[string]float64) []part {
	sums := make(map[string]float64)
	for name, rate := range growths {
		if !math.IsNaN(rate) {
			sums[labelOf(name)] += rate
		}
	}

	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(math.Abs(sums[b]), math.Abs(sums[a])), cmp.Compare(a, b))
	})
	others := part{label: otherComponent}
	var parts []part
	for _, name := range names {
		if name == otherComponent || len(parts) == maxComponents {
			others.value += sums[name]
			continue
		}
		parts = append(parts, part{name, sums[name]})
	}

	if len(names) > len(parts) {
		parts = append(parts, others)
	}
	return parts
}
