package mapping

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

const modelPages = 48

// owner is what is known of one page; the zero owner: not mapped.
type owner struct {
	mapped, byAllocator bool
	stack               uint64
	kind                growth.Kind
	origin              Origin
}

// model is the address space as an array of pages, on which every call is a loop.
type model struct {
	pages    [modelPages]owner
	brk      uint64 // pages
	tallies  map[Holder]Tally
	releases map[Releaser]Tally
}

func (m *model) each(from, to uint64, change func(*owner)) {
	for i := from; i < min(to, modelPages); i++ {
		change(&m.pages[i])
	}
}

func (m *model) fill(from, to uint64, o owner) { m.each(from, to, func(p *owner) { *p = o }) }

func (m *model) count(from, to uint64) (mapped int64) {
	m.each(from, to, func(p *owner) {
		if p.mapped {
			mapped++
		}
	})
	return mapped
}

func (m *model) tally(stack uint64, kind growth.Kind, pages int64) {
	t := m.tallies[Holder{stack, kind}]
	m.tallies[Holder{stack, kind}] = Tally{t.Calls + 1, t.Bytes + pages*page}
}

func (m *model) release(stack uint64, call string, pages int64) {
	if pages > 0 {
		t := m.releases[Releaser{stack, call}]
		m.releases[Releaser{stack, call}] = Tally{t.Calls + 1, t.Bytes + pages*page}
	}
}

func (m *model) move(old, oldLength, start, length uint64, call Call, keep bool) {
	before := m.pages
	grown := owner{true, call.ByAllocator, call.Stack, growth.KindMmap, Seen}
	if before[old].mapped {
		grown.kind = before[old].kind
	}
	if !keep {
		m.fill(old, old+oldLength, owner{})
	}
	m.fill(start, start+length, grown)
	for i := range min(oldLength, length) {
		if before[old+i].mapped {
			m.pages[start+i] = before[old+i]
		}
	}
	if length > oldLength && !call.ByAllocator {
		m.tally(call.Stack, grown.kind, int64(length-oldLength))
	}
}

// agree with the maps, a page at a time.
func (m *model) agree(lines [modelPages]string) (c Corrections) {
	for i, path := range lines {
		p := &m.pages[i]
		kind, isMapped := kindOfPath[path]
		switch {
		case !isMapped && p.mapped:
			*p = owner{}
			c.Vanished += page
		case isMapped && !p.mapped:
			*p = owner{mapped: true, kind: kind, origin: Unseen}
			c.Missed += page
		case isMapped && path != "anonymous":
			p.kind = kind
		}
	}
	return c
}

// What a page of the maps may be; a path that is not here: not mapped.
var kindOfPath = map[string]growth.Kind{"anonymous": growth.KindMmap, "/lib/a": growth.KindFile, "/dev/shm/b": growth.KindShmem}

// A pair is a set and the model that it must agree with.
type pair struct {
	*rand.Rand
	set   Set
	model model
	call  Call
}

// length in bytes of that many pages: a whole number of them or somewhat less.
func (p *pair) length(pages uint64) uint64 {
	if pages == 0 || p.IntN(2) == 0 {
		return pages * page
	}
	return pages*page - p.Uint64N(page)
}

// area is a random run of pages.
func (p *pair) area() (from, pages uint64) {
	from = p.Uint64N(modelPages)
	return from, 1 + p.Uint64N(min(12, modelPages-from))
}

func (p *pair) mapPages() {
	from, pages := p.area()
	flags, kind := uint32(private), growth.KindMmap
	if p.IntN(3) == 0 {
		flags, kind = unix.MAP_SHARED|unix.MAP_ANONYMOUS, growth.KindShmem
	}
	p.set.Map(p.call, at(from), p.length(pages), flags, none)
	p.model.fill(from, from+pages, owner{true, p.call.ByAllocator, p.call.Stack, kind, Seen})
	if !p.call.ByAllocator {
		p.model.tally(p.call.Stack, kind, int64(pages))
	}
}

func (p *pair) unmapPages() {
	from, pages := p.area()
	p.set.Unmap(p.call, at(from), p.length(pages))
	p.model.release(p.call.Stack, "munmap", p.model.count(from, from+pages))
	p.model.fill(from, from+pages, owner{})
}

// remapPages moves, grows or shrinks; the kernel takes no target that overlaps the source.
func (p *pair) remapPages() {
	old, oldPages := p.area()
	start, pages := p.area()
	flags := uint32(mayMove)
	switch {
	case p.IntN(3) == 0: // in its place
		start, pages = old, 1+p.Uint64N(min(12, modelPages-old))
	case p.IntN(3) == 0:
		pages, flags = min(oldPages, modelPages-start), mayMove|dontUnmap
		oldPages = pages
	}
	if start != old && start < old+oldPages && old < start+pages || flags&dontUnmap != 0 && start == old {
		return
	}
	p.set.Remap(p.call, at(old), p.length(oldPages), at(start), p.length(pages), flags)
	p.model.move(old, oldPages, start, pages, p.call, flags&dontUnmap != 0)
}

func (p *pair) moveBreak() {
	old, end := p.model.brk, 1+p.Uint64N(modelPages-1)
	p.set.Break(p.call, at(end))
	p.model.brk = end
	switch {
	case old == 0 || end == old: // 0 stands for a break that is not known yet
	case end > old:
		p.model.fill(old, end, owner{true, p.call.ByAllocator, p.call.Stack, growth.KindHeap, Seen})
		if !p.call.ByAllocator {
			p.model.tally(p.call.Stack, growth.KindHeap, int64(end-old))
		}
	default:
		p.model.fill(end, old, owner{})
		p.model.release(p.call.Stack, "brk", int64(old-end))
	}
}

func (p *pair) advise() {
	_, pages := p.area()
	p.set.Advise(p.call, p.length(pages))
	p.model.release(p.call.Stack, "madvise", int64(pages))
}

// reconcile shows both the same maps: those of the model, here and there changed.
func (p *pair) reconcile(t *testing.T) {
	var lines [modelPages]string
	for i, o := range p.model.pages {
		if o.mapped {
			lines[i] = "anonymous"
		}
	}
	for range p.IntN(4) {
		from, pages := p.area()
		path := [...]string{"", "anonymous", "/lib/a", "/dev/shm/b"}[p.IntN(4)]
		for i := from; i < from+pages; i++ {
			lines[i] = path
		}
	}
	if got, want := p.set.Reconcile(toMaps(lines)), p.model.agree(lines); got != want {
		t.Errorf("corrections %+v, want %+v", got, want)
	}
}

// toMaps joins neighbours of one path, as the kernel does.
func toMaps(lines [modelPages]string) (maps []process.Mapping) {
	for i, path := range lines {
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

// owners spreads the intervals of the set over pages.
func (p *pair) owners(t *testing.T) (pages [modelPages]owner) {
	if why := disorder(&p.set); why != "" {
		t.Fatalf("%s: %+v", why, p.set.Intervals())
	}
	for _, i := range p.set.Intervals() {
		if i.Start < at(0) || i.End > at(modelPages) || (i.Start|i.End)%page != 0 {
			t.Fatalf("outside or no whole pages: %+v", i)
		}
		for n := (i.Start - base) / page; n < (i.End-base)/page; n++ {
			pages[n] = owner{true, i.ByAllocator, i.Stack, i.Kind, i.Origin}
		}
	}
	return pages
}
