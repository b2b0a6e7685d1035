package residency

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/source"
)

// A firstTouchRow is a row of memory whose allocation site is unknown. It is divided among the
// stacks that have touched its pages first, as sampled page faults show them.
type firstTouchRow struct {
	kind  growth.Kind
	root  string
	class string // of the memory; "" if the root shows it
}

// firstTouchMemory is the memory of a firstTouchRow.
type firstTouchMemory struct {
	bytes, shared int64
	variance      float64
}

// addForFirstTouch adds memory to a row and returns the sum. addFirstTouch divides it.
func (r *Rows) addForFirstTouch(
	row firstTouchRow, bytes int64, variance float64,
) *firstTouchMemory {
	memory, ok := r.firstTouch[row]
	if !ok {
		memory = &firstTouchMemory{}
		r.firstTouch[row] = memory
	}

	memory.bytes += bytes
	memory.variance += variance
	return memory
}

// A firstToucher is a stack that has touched memory of a row first.
type firstToucher struct {
	firstTouchRow
	stack uint64
}

// faultSample sums the sampled page faults of a row.
type faultSample struct {
	bytes   float64 // of the pages that were sampled
	weight  float64 // bytes that these represent
	squares float64 // sum of the squared weights
}

// size is the effective sample size by Kish, (Σw)²/Σw²: the number of faults if all weigh the same.
func (s faultSample) size() float64 { return s.weight * s.weight / s.squares }

// addFirstTouch divides the memory of each firstTouchRow among the stacks that have touched it
// first, in proportion to the bytes that their sampled page faults represent.
func (r *Rows) addFirstTouch(faults []source.Fault) {
	samples := make(map[firstTouchRow]faultSample)
	weights := make(map[firstToucher]float64)
	var stale []uint64
	huge := r.hugePlaces(faults)
	for _, f := range faults {
		row, run, segment, ok := r.firstTouchRowAt(f)
		if !ok {
			if r.isStale(f) {
				stale = append(stale, f.Page)
			}
			continue
		}

		bytes := huge.bytesPerFault(row, run, segment)
		weight := f.Weight * bytes
		weights[firstToucher{firstTouchRow: row, stack: f.Stack}] += weight
		sample := samples[row]
		sample.bytes += bytes
		sample.weight += weight
		sample.squares += weight * weight
		samples[row] = sample
	}

	for site, weight := range weights {
		r.addFirstToucher(site, weight, samples[site.firstTouchRow])
	}
	for row, memory := range r.firstTouch {
		if samples[row].weight == 0 {
			r.addUntouched(row, memory)
		}
	}

	if r.stacks != nil {
		r.StaleFaults = stale
	}
}

// isStale reports whether a fault that belongs to no row will not belong to one later either. The
// page may be in memory if it was not scanned. Recent faults of the heap may be of a spike.
func (r *Rows) isStale(f source.Fault) bool {
	segment := r.segmentAt(f.Page)
	isRecent := segment != nil && segment.Heap && f.Time >= r.keepFaultsFrom
	if _, isScanned := r.scanned.Find(f.Page); isScanned {
		_, isInMemory := r.runs.Find(f.Page)
		return !isRecent || !isInMemory
	}
	return segment == nil || !isRecent && !f.Copied && (segment.Heap || segment.hasMapper())
}

// addFirstToucher adds the share p of a row that sampled page faults of effective size n assign to
// a stack. Its variance is the variance of a proportion with finite population correction,
// B²·(1−b/B)·p·(1−p)/n, for a row of B bytes of which b are in sampled pages.
func (r *Rows) addFirstToucher(site firstToucher, weight float64, sample faultSample) {
	memory, ok := r.firstTouch[site.firstTouchRow]
	if !ok {
		return
	}

	share := weight / sample.weight
	bytes := float64(memory.bytes)
	proportion := share * (1 - share) / sample.size()
	variance := bytes*max(0, bytes-sample.bytes)*proportion + memory.variance*share

	stack := r.stacks(site.stack).Under(site.root)
	row := r.add(stack, site.kind, round(share*bytes), 0, variance)
	row.SharedBytes += round(share * float64(memory.shared))
}

// addUntouched adds the memory of a row without sampled page faults.
func (r *Rows) addUntouched(row firstTouchRow, memory *firstTouchMemory) {
	var names []string
	if row.class != "" {
		names = append(names, row.class)
	}

	added := r.addNamed(row.kind, memory.bytes, 0, memory.variance, row.root, names...)
	if added != nil {
		added.SharedBytes += memory.shared
	}
}

// firstTouchRowAt returns the row of the page of a fault, its run and its segment. ok is false if
// the allocation site of the page is known otherwise, or if the page is not in memory any more.
func (r *Rows) firstTouchRowAt(
	f source.Fault,
) (row firstTouchRow, run mem.Run, segment *Segment, ok bool) {
	run, ok = r.runs.Find(f.Page)
	segment = r.segmentAt(f.Page)
	if !ok || segment == nil {
		return firstTouchRow{}, run, segment, false
	}

	row, ok = firstTouchRowOf(run, segment)
	if _, isOlder := r.Older.Find(f.Page); isOlder && run.Origin == mem.SinceTracing &&
		segment.Heap && !run.File && !run.Swapped {
		row, ok = firstTouchRow{kind: growth.KindOlder, root: growth.RootOlder}, true
	}
	isCopy := !run.File && run.Origin == mem.CopiedOnWrite
	return row, run, segment, ok && (f.Copied || !isCopy)
}

// firstTouchRowOf returns the row of a run within a segment. ok is false if its allocation site is
// known otherwise.
func firstTouchRowOf(run mem.Run, segment *Segment) (row firstTouchRow, ok bool) {
	if run.Swapped || !segment.countsInRSS() {
		return firstTouchRow{}, false
	}

	if run.File {
		of := segment.rowKind()
		return firstTouchRow{kind: of.kind, root: of.root}, !segment.hasMapper()
	}

	switch run.Origin {
	case mem.Inherited, mem.BeforeTracing:
		return firstTouchRow{}, false
	case mem.CopiedOnWrite:
		class := string(segment.Class)
		if segment.Heap {
			class = heapClass
		}
		return firstTouchRow{kind: growth.KindCOW, root: growth.RootCopied, class: class}, true
	}

	of := segment.privateRowKind()
	isKnown := segment.Heap || segment.hasMapper() || of.anyAge
	return firstTouchRow{kind: of.kind, root: of.root}, !isKnown
}
