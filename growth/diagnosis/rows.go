package diagnosis

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/claim"
)

// A change is the change of some rows, in bytes.
type change struct{ bytes, err float64 }

func (c *change) add(r *breakdown.Row) {
	c.bytes += float64(r.Delta())
	c.err = math.Hypot(c.err, r.Error)
}

// sums are the changes of the rows of a process.
type sums struct {
	// rss is the change of all rows.
	rss int64
	// live is the change of all live heap memory, with malloc's metadata. accumulating and python
	// are its parts that belong to stacks that accumulate.
	live, metadata, accumulating, python change
	// free is the heap memory that is known to be free, unknown the heap memory that is free or
	// live.
	free, unknown change

	arenas, mapped, older, shared, copied, inherited, files, pinned change
	// unseen is the part of mapped whose mapping no source has seen.
	unseen float64
	// unexplained is RSS less the other rows; it can be negative.
	unexplained change
}

// sums adds up the rows of the process by their kinds.
func (e *Evidence) sums() *sums {
	accumulates := make(map[growth.Key]bool)
	for i := range e.Trends {
		t := &e.Trends[i]
		hasFilled := e.HasEnded && t.Trend == growth.TrendSaturating
		if t.Trend == growth.TrendAccumulating || t.Trend == growth.TrendReplaced || hasFilled {
			accumulates[growth.KeyOf(t.Stack, t.Kind, t.GPU)] = true
		}
	}

	s := &sums{}
	for i := range e.Rows {
		r := &e.Rows[i]
		if r.PID == e.PID && r.Kind != growth.KindSwapped {
			s.rss += r.Delta()
			e.addRow(s, r, accumulates[growth.KeyOf(r.Stack, r.Kind, r.GPU)])
		}
	}

	return s
}

// components of memory that rows alone do not show.
const pythonComponent, pinnedComponent = "python", "pinned"

func (e *Evidence) addRow(s *sums, r *breakdown.Row, accumulates bool) {
	switch r.Kind {
	case growth.KindHeap:
		e.addHeapRow(s, r, accumulates)
	case growth.KindMetadata:
		s.live.add(r)
		s.metadata.add(r)
	case growth.KindRetained:
		s.free.add(r)
	case growth.KindUnclassified:
		s.unknown.add(r)
	case growth.KindBeforeTracing:
		if isHeapFromBefore(r) { // objects born since lie in it: they are no growth of the heap
			s.live.add(r)
		}
	case growth.KindPython:
		s.arenas.add(r)
	case growth.KindMmap, growth.KindStack, growth.KindJIT, growth.KindDeviceFile:
		if e.Components.Of(r.Stack) == pinnedComponent {
			s.pinned.add(r)
			return
		}
		s.mapped.add(r)
		if r.Stack.Root != "" && r.Kind == growth.KindMmap {
			s.unseen += float64(r.Delta())
		}
	case growth.KindOlder: // its sum is known, if not how much of it each stack has touched
		s.older.bytes += float64(r.Delta())
	case growth.KindShmem:
		s.shared.add(r)
	case growth.KindCOW:
		s.copied.add(r)
	case growth.KindInherited:
		s.inherited.add(r)
	case growth.KindFile:
		s.files.add(r)
	case growth.KindPinned:
		s.pinned.add(r)
	case growth.KindUnexplained:
		s.unexplained.add(r)
	}
}

// parts are the parts of the growth that may be diagnoses. There are none where the rows do not add
// up to RSS: something was measured wrong.
func (s *sums) parts(e *Evidence) []part {
	if math.Abs(s.unexplained.bytes) > maxUnexplained*float64(s.rss) {
		return nil
	}
	return append(s.heapParts(e), s.mappedParts()...)
}

func (e *Evidence) addHeapRow(s *sums, r *breakdown.Row, accumulates bool) {
	if r.Stack.Root == growth.RootUnknownSite {
		s.unknown.add(r)
		return
	}

	component := e.Components.Of(r.Stack)
	if component == pinnedComponent {
		s.pinned.add(r)
		return
	}

	s.live.add(r)
	switch {
	case !accumulates:
	case component == pythonComponent:
		s.python.add(r)
	default:
		s.accumulating.add(r)
	}
}

// isHeapFromBefore is true of heap memory that was resident when tracing started.
func isHeapFromBefore(r *breakdown.Row) bool {
	frames := r.Stack.Frames
	return len(frames) > 0 && frames[0].Function == "heap"
}

// heapParts are leaks, Python's objects and fragmentation.
//
// Free memory and live memory take each other's place: where one shrinks, the growth of the other
// is less by as much.
func (s *sums) heapParts(e *Evidence) []part {
	heap := s.live.bytes + s.free.bytes + s.unknown.bytes
	free, confidence := s.free, High
	walked := int64(0)
	if _, ok := claim.May(claim.Fragmentation, e.PID, e.Missing); ok {
		free.bytes = s.seenFreed(e)
	} else {
		free, confidence = s.walkedFree(e)
		if len(e.Walks) > 0 {
			walked = e.Walks[len(e.Walks)-1].FreeResident
		}
	}

	live := heap - free.bytes

	fragmentation := part{
		cause: Fragmentation, bytes: free.bytes + min(0, live), err: free.err, most: confidence,
		free: walked,
	}

	// Metadata belongs to the objects.
	leak := part{cause: HeapLeak, bytes: s.accumulating.bytes, err: s.accumulating.err, most: High}
	python := part{
		cause: PythonObjects, bytes: s.python.bytes + s.arenas.bytes,
		err: math.Hypot(s.python.err, s.arenas.err), most: Medium,
	}

	if objects := s.live.bytes - s.metadata.bytes; objects > 0 {
		leak.bytes *= 1 + max(0, s.metadata.bytes)/objects
	}
	if _, ok := claim.May(claim.LiveObjects, e.PID, e.Missing); !ok {
		leak.most = Medium
	}

	// Accumulation in the place of free memory is no growth of RSS.
	room := max(0, live+min(0, free.bytes))
	if found := leak.bytes + s.python.bytes; found > room {
		factor := room / found
		leak.bytes *= factor
		leak.err *= factor
		python.bytes -= (1 - factor) * s.python.bytes
	}

	return []part{leak, python, s.tensors(e, &leak, room), fragmentation}
}

// minTensors is how many times the bytes that call sites explain the storages of tensors must have
// grown before they are a part of their own. Else the call sites are the tensors', seen better.
const minTensors = 2

// tensors are storages that censuses have counted, beyond the memory that call sites explain: calls
// of a busy trainer are sampled in bursts, and a slow leak among them is not significant for long.
func (s *sums) tensors(e *Evidence, leak *part, room float64) part {
	between, explained := e.Storages.To-e.Storages.From, 0.0
	if leak.bytes > leak.err {
		explained = leak.bytes
	}
	if between < time.Duration(minWalkedShare*float64(e.Elapsed)) || between <= 0 ||
		e.Start-e.Storages.From > e.Elapsed/2 {
		return part{}
	}

	share := between.Seconds() / e.Elapsed.Seconds()
	bytes := min(e.Storages.Bytes/share, room-s.python.bytes)
	if bytes < minTensors*explained {
		return part{}
	}
	return part{cause: Tensors, bytes: bytes - explained, err: e.Storages.Margin / share, most: Medium}
}

// maxRounding is how much more than an object the free memory in its place may be.
const maxRounding = 1.5

// seenFreed is the growth of the heap memory that no known object takes, as far as every byte of it
// was seen to be freed: at most the bytes freed over the window, and the free bytes by walks of the
// heaps. The rest may be rounding, or a block older than the trace.
func (s *sums) seenFreed(e *Evidence) float64 {
	free := s.free.bytes
	if e.Freed != nil {
		free = min(free, maxRounding*max(0, *e.Freed))
	}
	if walked, confidence := s.walkedFree(e); confidence != Low {
		free = min(free, walked.bytes)
	}
	return free
}

// walkedFree is the growth of free memory by the walks of malloc's heaps. It is at most the growth
// of the memory that may be free.
func (s *sums) walkedFree(e *Evidence) (free change, most Confidence) {
	if len(e.Walks) < 2 || e.Elapsed <= 0 {
		return change{}, Low
	}

	// Walks of large heaps are rare. One that is not long before the window is better than none.
	first, last := e.Walks[0], e.Walks[len(e.Walks)-1]
	for _, walk := range e.Walks {
		if (walk.At - e.Start).Abs() < (first.At - e.Start).Abs() {
			first = walk
		}
	}

	if e.Start-first.At > e.Elapsed/2 {
		return change{}, Low
	}
	between := last.At - first.At
	if between < time.Duration(minWalkedShare*float64(e.Elapsed)) {
		return change{}, Low
	}

	share := between.Seconds() / e.Elapsed.Seconds()
	free.bytes = float64(last.FreeResident-first.FreeResident) / share
	free.bytes = min(free.bytes, max(0, s.free.bytes+s.unknown.bytes))
	if share >= confidentWalkedShare && first.At >= e.Start {
		return free, High
	}
	return free, Medium
}

// mappedParts are the parts of the growth outside the heap.
func (s *sums) mappedParts() []part {
	of := func(cause Cause, c change) part {
		return part{cause: cause, bytes: c.bytes, err: c.err, most: High}
	}
	mapped := of(MmapGrowth, s.mapped)
	if s.unseen >= 0.5*s.mapped.bytes {
		mapped.most = Medium
	}

	// A copy takes the place of an inherited page. Inherited memory does not grow: where a scan of
	// few pages says so, its sample is wrong.
	copied := s.copied
	copied.bytes += min(0, s.inherited.bytes)

	return []part{
		mapped, of(OlderMemory, s.older), of(SharedMemory, s.shared), of(CopyOnWrite, copied),
		of(PageCache, s.files), of(Pinned, s.pinned),
	}
}
