package fleet

import "cmp"

// places are where processes can be watched. While some are free, a process takes one. Then
// the owner who has most gives one up for an owner who has fewer.
type places struct {
	free   int
	counts map[string]int // by owner
	// taken are the places that can be given up.
	taken []place
}

// A place is of a watched process.
type place struct {
	watched *watchedProcess
	owner   string
	private int64 // its memory in bytes
}

// muchLarger is how many times as large a process must be to take the place of another one of its
// owner, whose history is lost: of two that grow, each would replace the other in turn.
const muchLarger = 2

// offer reports whether there is a place for a process of an owner, and which one must be given up
// for it; nil: there is a free one.
func (p *places) offer(owner string, private int64) (givenUp *place, ok bool) {
	if p.free > 0 {
		return nil, true
	}

	var smallest *place
	for i := range p.taken {
		t := &p.taken[i]
		if smallest == nil || p.compare(t, smallest, owner) < 0 {
			smallest = t
		}
	}
	if smallest == nil {
		return nil, false
	}

	fewer := p.counts[smallest.owner] - p.counts[owner]
	isLarger := private >= muchLarger*smallest.private
	return smallest, fewer > 1 || isLarger && (fewer == 1 || smallest.owner == owner)
}

// compare orders places: the one comes first that is given up for an owner. It is of who has most,
// of the owner if that is as many, and the smallest one of these.
func (p *places) compare(a, b *place, owner string) int {
	isOthers := func(one *place) int {
		if one.owner == owner {
			return 0
		}
		return 1
	}

	return cmp.Or(
		cmp.Compare(p.counts[b.owner], p.counts[a.owner]),
		cmp.Compare(isOthers(a), isOthers(b)),
		cmp.Compare(a.private, b.private),
	)
}

// take takes a place that was offered.
func (p *places) take(owner string, givenUp *place) {
	p.counts[owner]++
	if givenUp == nil {
		p.free--
		return
	}

	p.counts[givenUp.owner]--
	last := len(p.taken) - 1
	*givenUp = p.taken[last]
	p.taken = p.taken[:last]
}
