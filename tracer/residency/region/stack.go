package region

import "github.com/allocscope/allocscope/tracer/process"

// A thread's struct pthread begins with its control block, which has pointers to itself in the first and third word; 704 bytes
// on, a list links it to other threads (nptl/descr.h, x86-64). The last fields have the stack's mapping, its size and that of
// its guard, in this order. It lies at the top of the stack, in the last page.
const (
	threadList     = 704
	threadAlign    = 16
	defaultStack   = 8 << 20 // bytes, without the guard
	maxStackPages  = 1 << 14 // looked at
	stackPageBytes = 4096
)

// stacks finds the stacks of threads made by glibc.
func (f *finder) stacks(maps []process.Mapping, starts []uint64) []Region {
	var found []Region
	seen := make(map[uint64]bool)
	pages := f.stackTops(maps, starts)
	for len(pages) > 0 && len(seen) < maxStackPages {
		var fresh []uint64
		for _, page := range pages {
			if _, ok := holding(f.open, page); ok && !seen[page] && len(seen) < maxStackPages {
				seen[page] = true
				fresh = append(fresh, page)
			}
		}
		pages = nil
		for i, content := range f.peek(fresh, stackPageBytes) {
			if content == nil {
				continue
			}
			thread, ok := f.threadIn(fresh[i], content)
			if !ok {
				continue
			}
			found = append(found, thread.region)
			for _, link := range thread.links {
				pages = append(pages, (link-threadList)&^(stackPageBytes-1))
			}
		}
	}
	return found
}

// stackTops are the pages that may be the last ones of stacks: below the end of a mapping that lies above a guard, or below
// where, inside such a mapping, another one has begun or a stack of the usual size would end.
func (f *finder) stackTops(maps []process.Mapping, starts []uint64) []uint64 {
	var pages []uint64
	for i, m := range maps {
		if i == 0 || !m.Write || !isSearched(m) || maps[i-1].End != m.Start || maps[i-1].Read || !isSearched(maps[i-1]) {
			continue
		}
		pages = append(pages, m.End-stackPageBytes)
		if m.Len() > defaultStack {
			pages = append(pages, m.Start+defaultStack-stackPageBytes)
		}
	}
	for _, s := range starts {
		pages = append(pages, s-stackPageBytes)
	}
	return pages
}

// A thread is one whose control block was found.
type thread struct {
	region Region
	links  [2]uint64 // to the lists of the next and the previous thread
}

// threadIn looks for the control block of a thread in a page.
func (f *finder) threadIn(page uint64, content []byte) (thread, bool) {
	for at := 0; at+threadList+16 <= len(content); at += threadAlign {
		self := page + uint64(at)
		if word(content, at) != self || word(content, at+16) != self {
			continue
		}
		area, _ := holding(f.areas, self)
		for i := at + threadList + 16; i+24 <= len(content); i += 8 {
			start, size, guard := word(content, i), word(content, i+8), word(content, i+16)
			if start < area.start || start > self || size > area.end-start || guard >= size ||
				(start|size|guard)%pageSize != 0 || (page+stackPageBytes) != start+size {
				continue
			}
			return thread{
				Region{Start: start, End: start + size, Class: ThreadStack, Name: string(ThreadStack), Private: true},
				[2]uint64{word(content, at+threadList), word(content, at+threadList+8)},
			}, true
		}
	}
	return thread{}, false
}

// Stacks gives the stacks of threads, as Classify does. starts are addresses at which mappings are known to have begun; above
// a stack, something begins.
func Stacks(maps []process.Mapping, starts []uint64, memory Memory) []Region {
	f := newFinder(maps, memory)
	f.take(f.stacks(maps, starts))
	return f.found
}
