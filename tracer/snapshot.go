package tracer

import (
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mapping"
)

// maxReadPages bounds the address space whose pages are looked at in one snapshot where the kernel has no PAGEMAP_SCAN.
const maxReadPages = 64 << 30 // bytes

// Snapshot reads what is alive. After the process has ended it gives what was alive at the end, without mappings.
func (s *Session) Snapshot() (*growth.Snapshot, error) {
	began := time.Now()
	now := monotonic()
	snapshot := &growth.Snapshot{Elapsed: time.Duration(now - s.started)}
	sums := make(map[uint64]*sum)
	var err error
	if snapshot.LiveObjects, err = s.readLive(sums, now); err != nil {
		return nil, err
	}
	if err := s.readTallies(sums); err != nil {
		return nil, err
	}
	calls := s.notices.take() // and with them every stack that the above may name
	held := make(holdings)
	for id, sum := range sums {
		h := held.of(s.stacks.get(id), growth.KindHeap)
		h.InuseObjects += sum.inuseObjects
		h.InuseBytes += sum.inuseBytes
		h.Samples += sum.samples
		h.AllocObjects += sum.allocObjects
		h.AllocBytes += sum.allocBytes
	}
	if s.Err() == nil {
		s.reconcile(calls)
	}
	if s.Err() == nil { // not ended meanwhile
		s.addMappings(held, &snapshot.Mappings)
		s.addReleases(snapshot)
		snapshot.Mappings.Vanished = s.vanished
	}
	snapshot.Holdings = held.list()
	snapshot.Took = time.Since(began)
	return snapshot, nil
}

// reconcile brings the address space up to date. The maps are only believed if no call fell into their reading.
func (s *Session) reconcile(calls []bpf.KernelNotice) {
	for range 3 {
		maps, err := s.Process.Maps()
		if err != nil {
			break
		}
		s.apply(calls, maps)
		if calls = s.notices.take(); len(calls) == 0 {
			s.vanished += s.space.Reconcile(maps).Vanished
			return
		}
	}
	s.apply(calls, nil)
}

// addMappings adds what the mapped memory holds: the bytes that have been touched.
func (s *Session) addMappings(to holdings, totals *growth.MappingTotals) {
	for _, i := range s.space.Intervals() {
		if i.Origin == mapping.BeforeAttach {
			continue
		}
		touched, counted := s.measure(i, totals)
		if !counted {
			continue
		}
		if i.Origin == mapping.Unseen {
			i.Stack = unseen
		}
		h := to.of(s.stacks.get(i.Stack), i.Kind)
		h.InuseObjects++
		h.Samples++
		h.InuseBytes += touched
	}
	for key, t := range s.space.Tallies() {
		h := to.of(s.stacks.get(key.Stack), key.Kind)
		h.AllocObjects += float64(t.Calls)
		h.AllocBytes += float64(t.Bytes)
	}
}

// holdings are put together from the live map and the mappings.
type holdings map[holder]*growth.Holding

type holder struct {
	stack *growth.Stack
	kind  growth.Kind
}

func (h holdings) of(stack *growth.Stack, kind growth.Kind) *growth.Holding {
	key := holder{stack, kind}
	found, ok := h[key]
	if !ok {
		found = &growth.Holding{Stack: stack, Kind: kind}
		h[key] = found
	}
	return found
}

func (h holdings) list() []growth.Holding {
	list := make([]growth.Holding, 0, len(h))
	for _, holding := range h {
		list = append(list, *holding)
	}
	return list
}

// measure adds an interval to the totals and gives the bytes of it that have been touched. What the allocator mapped does
// not count: its contents are in the live map.
func (s *Session) measure(i mapping.Interval, totals *growth.MappingTotals) (touched int64, counted bool) {
	totals.Reserved += int64(i.Len())
	if i.ByAllocator {
		totals.Allocator += int64(i.Len())
		return 0, false
	}
	if i.Origin == mapping.Unseen {
		totals.Unknown += int64(i.Len())
	}
	bytes, ok := s.touched(i, totals)
	if !ok {
		totals.Unmeasured += int64(i.Len())
	}
	totals.Touched += int64(bytes)
	return int64(bytes), true
}

// addReleases adds what was given back to the kernel.
func (s *Session) addReleases(snapshot *growth.Snapshot) {
	for by, t := range s.space.Releases() {
		snapshot.Releases = append(snapshot.Releases, growth.Release{Stack: s.stacks.get(by.Stack), Call: by.Call, Calls: t.Calls, Bytes: t.Bytes})
		if by.Call == "madvise" {
			snapshot.Mappings.Released += t.Bytes
		} else {
			snapshot.Mappings.Unmapped += t.Bytes
		}
	}
}

// touched counts the bytes of an interval that hold memory.
func (s *Session) touched(i mapping.Interval, totals *growth.MappingTotals) (bytes uint64, ok bool) {
	if s.pages == nil || (!s.pages.Scans() && totals.Reserved-totals.Allocator > maxReadPages) {
		return 0, false
	}
	bytes, err := s.pages.Touched(i.Start, i.End)
	return bytes, err == nil
}
