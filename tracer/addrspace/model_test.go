package addrspace

import (
	"maps"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// TestCalls makes the same random calls on a set and on an array of pages. After each call, both
// must agree about every page.
func TestCalls(t *testing.T) {
	defer func(size int) { maxChunk = size }(maxChunk)
	maxChunk = 3

	for seed := range uint64(400) {
		p := &pair{
			Rand:  rand.New(rand.NewPCG(seed, 0)),
			model: model{mapped: make(map[Key]Total), released: make(map[string]Total)},
		}
		for step := range 100 {
			p.call = Call{Stack: 1 + p.Uint64N(5), ByAllocator: p.IntN(4) == 0}
			p.step(t)
			p.mustAgree(t)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

const modelPages = 48

// pageState is the state of one page. The zero value means not mapped.
type pageState struct {
	mapped, byAllocator bool
	stack               uint64
	kind                growth.Kind
	origin              Origin
}

// A model is the address space as an array of pages, on which every call is a loop.
type model struct {
	pages    [modelPages]pageState
	brk      uint64 // in pages; 0: unknown
	mapped   map[Key]Total
	released map[string]Total // by call
}

func (m *model) fill(from, to uint64, state pageState) {
	for i := from; i < min(to, modelPages); i++ {
		m.pages[i] = state
	}
}

func (m *model) countMapped(call Call, kind growth.Kind, pages uint64) {
	if !call.ByAllocator {
		key := Key{call.Stack, kind}
		m.mapped[key] = m.mapped[key].plus(total(1, pages))
	}
}

func (m *model) countReleased(call string, pages uint64) {
	if pages > 0 {
		m.released[call] = m.released[call].plus(total(1, pages))
	}
}

func (m *model) countMappedPages(from, pages uint64) (mapped uint64) {
	for _, state := range m.pages[from : from+pages] {
		if state.mapped {
			mapped++
		}
	}
	return mapped
}

func (m *model) remap(call Call, old, oldPages, start, pages uint64, keep bool) {
	before := m.pages
	grown := pageState{true, call.ByAllocator, call.Stack, growth.KindMmap, FromCall}
	if before[old].mapped {
		grown.kind = before[old].kind
	}

	if !keep {
		m.fill(old, old+oldPages, pageState{})
	}
	m.fill(start, start+pages, grown)
	for i := range min(oldPages, pages) {
		if before[old+i].mapped && !call.ByAllocator {
			m.pages[start+i] = before[old+i]
		}
	}
	if pages > oldPages {
		m.countMapped(call, grown.kind, pages-oldPages)
	}
}

// kindOfPath are the paths that a page of the maps may have; none means not mapped.
var kindOfPath = map[string]growth.Kind{
	"anonymous": growth.KindMmap, "/lib/a": growth.KindFile, "/dev/shm/b": growth.KindShmem,
}

// reconcile leaves pages that are changing as they are.
func (m *model) reconcile(
	paths [modelPages]string, changing [modelPages]bool, isUnknown bool,
) (c Corrections) {
	for i, path := range paths {
		if changing[i] {
			continue
		}
		state := &m.pages[i]
		kind, isMapped := kindOfPath[path]
		switch {
		case !isMapped && state.mapped:
			*state = pageState{}
			c.Vanished += int64(page)
		case isMapped && !state.mapped && isUnknown:
		case isMapped && !state.mapped:
			*state = pageState{mapped: true, kind: kind, origin: Unobserved}
			c.Missed += int64(page)
		case isMapped && (path != "anonymous" || state.kind == growth.KindFile):
			state.kind = kind
		}
	}
	return c
}

// A pair is a set and the model that it must agree with.
type pair struct {
	*rand.Rand
	set   IntervalSet
	model model
	call  Call
}

// stateOf is the state of a page that the current call has mapped.
func (p *pair) stateOf(kind growth.Kind) pageState {
	return pageState{true, p.call.ByAllocator, p.call.Stack, kind, FromCall}
}

// bytes of some pages, or somewhat less.
func (p *pair) bytes(pages uint64) uint64 {
	if pages == 0 || p.IntN(2) == 0 {
		return pages * page
	}
	return pages*page - p.Uint64N(page)
}

// pages is a random range.
func (p *pair) pages() (from, pages uint64) {
	from = p.Uint64N(modelPages)
	return from, 1 + p.Uint64N(min(12, modelPages-from))
}

func (p *pair) step(t *testing.T) {
	from, pages := p.pages()
	switch p.IntN(12) {
	case 0, 1, 2, 3:
		flags, kind := uint32(private), growth.KindMmap
		if p.IntN(3) == 0 {
			flags, kind = unix.MAP_SHARED|unix.MAP_ANONYMOUS, growth.KindShmem
		}
		p.set.Mmap(p.call, at(from), p.bytes(pages), flags, noFile)
		p.model.fill(from, from+pages, p.stateOf(kind))
		p.model.countMapped(p.call, kind, pages)
	case 4, 5:
		p.set.Munmap(at(from), p.bytes(pages))
		p.model.countReleased("munmap", p.model.countMappedPages(from, pages))
		p.model.fill(from, from+pages, pageState{})
	case 6, 7, 8:
		p.remap(from, pages)
	case 9:
		p.moveBreak(1 + p.Uint64N(modelPages-1))
	case 10:
		var flags bpf.ReleaseFlags
		released := pages
		if p.IntN(2) == 0 {
			flags, released = bpf.ReleaseHoles, p.model.countMappedPages(from, pages)
		}
		p.set.Madvise(1, at(from), p.bytes(pages), flags)
		p.model.countReleased("madvise", released)
	case 11:
		p.reconcile(t)
	}
}

// remap moves, grows or shrinks a range; the kernel accepts no target that overlaps the source.
func (p *pair) remap(old, oldPages uint64) {
	start, pages := p.pages()
	flags := uint32(unix.MREMAP_MAYMOVE)
	switch {
	case p.IntN(3) == 0: // in place
		start, pages = old, 1+p.Uint64N(min(12, modelPages-old))
	case p.IntN(3) == 0:
		pages = min(oldPages, modelPages-start)
		oldPages, flags = pages, flags|unix.MREMAP_DONTUNMAP
	}

	keep := flags&unix.MREMAP_DONTUNMAP != 0
	overlaps := start != old && start < old+oldPages && old < start+pages
	if overlaps || keep && start == old {
		return
	}
	p.set.Mremap(p.call, at(old), p.bytes(oldPages), at(start), p.bytes(pages), flags)
	p.model.remap(p.call, old, oldPages, start, pages, keep)
}

func (p *pair) moveBreak(end uint64) {
	old := p.model.brk
	p.set.Brk(at(end))
	p.model.brk = end
	switch {
	case old == 0 || end == old:
	case end > old:
		p.model.fill(old, end, pageState{true, true, 0, growth.KindHeap, FromCall})
	default:
		p.model.fill(end, old, pageState{})
		p.model.countReleased("brk", old-end)
	}
}

// reconcile shows both the maps of the model with some random changes.
func (p *pair) reconcile(t *testing.T) {
	var paths [modelPages]string
	for i, state := range p.model.pages {
		if state.mapped {
			paths[i] = "anonymous"
		}
	}
	for range p.IntN(4) {
		from, pages := p.pages()
		path := [...]string{"", "anonymous", "/lib/a", "/dev/shm/b"}[p.IntN(4)]
		for i := from; i < from+pages; i++ {
			paths[i] = path
		}
	}

	var changing [modelPages]bool
	var calls []bpf.Event
	for range max(0, p.IntN(8)-4) {
		from, pages := p.pages()
		kind := [...]bpf.EventKind{bpf.EventMmap, bpf.EventMunmap, bpf.EventMremap}[p.IntN(3)]
		calls = append(calls, bpf.Event{Kind: kind, Start: at(from), Length: p.bytes(pages)})
		for i := from; i < from+pages; i++ {
			changing[i] = true
		}
	}
	meanwhile := ChangesOf(calls)
	meanwhile.Unknown = p.IntN(4) == 0

	got := p.set.Reconcile(toMaps(paths), meanwhile)
	if want := p.model.reconcile(paths, changing, meanwhile.Unknown); got != want {
		t.Errorf("corrections %+v, want %+v", got, want)
	}
}

// toMaps merges adjacent pages of one path, as the kernel does.
func toMaps(paths [modelPages]string) (maps []process.Mapping) {
	for i, path := range paths {
		if path == "" {
			continue
		}
		if path == "anonymous" {
			path = ""
		}
		next := line(uint64(i), uint64(i+1), path)
		if n := len(maps); n > 0 && maps[n-1].End == next.Start && maps[n-1].Path == path {
			maps[n-1].End = next.End
			continue
		}
		maps = append(maps, next)
	}
	return maps
}

func (p *pair) mustAgree(t *testing.T) {
	t.Helper()
	if problem := disorder(&p.set); problem != "" {
		t.Fatalf("%s: %+v", problem, p.set.Intervals())
	}

	var got [modelPages]pageState
	for _, i := range p.set.Intervals() {
		if i.Start < at(0) || i.End > at(modelPages) || (i.Start|i.End)%page != 0 {
			t.Fatalf("outside or no whole pages: %+v", i)
		}
		for n := (i.Start - base) / page; n < (i.End-base)/page; n++ {
			got[n] = pageState{true, i.ByAllocator, i.Stack, i.Kind, i.Origin}
		}
	}
	for i := range got {
		if got[i] != p.model.pages[i] {
			t.Errorf("page %d: %+v, want %+v", i, got[i], p.model.pages[i])
		}
	}

	sums, want := mergeShared(p.set.Mapped()), mergeShared(p.model.mapped)
	if !maps.Equal(sums, want) {
		t.Errorf("mapped %+v, want %+v", sums, want)
	}
	for _, call := range []string{"munmap", "brk", "madvise"} {
		mustHaveReleased(t, &p.set, call, p.model.released[call])
	}
}

// mergeShared counts shared memory as files: a page does not know which call it belongs to.
func mergeShared(mapped map[Key]Total) map[Key]Total {
	merged := make(map[Key]Total)
	for key, t := range mapped {
		if key.Kind == growth.KindShmem {
			key.Kind = growth.KindFile
		}
		merged[key] = merged[key].plus(t)
	}
	return merged
}
