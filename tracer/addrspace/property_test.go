package mapping

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// The same calls are made on a set and on an array of pages; after each of them both own every page alike.
func TestASetAgreesWithAnArrayOfPages(t *testing.T) {
	for seed := range uint64(400) {
		p := newPair(seed)
		for step := range 100 {
			p.call = Call{Stack: 1 + p.Uint64N(5), ByAllocator: p.IntN(4) == 0}
			p.step(t)
			mustAgree(t, p)
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

func newPair(seed uint64) *pair {
	return &pair{
		Rand:  rand.New(rand.NewPCG(seed, 0)),
		model: model{tallies: make(map[Holder]Tally), releases: make(map[Releaser]Tally)},
	}
}

func (p *pair) step(t *testing.T) {
	switch p.IntN(12) {
	case 0, 1, 2, 3:
		p.mapPages()
	case 4, 5:
		p.unmapPages()
	case 6, 7, 8:
		p.remapPages()
	case 9:
		p.moveBreak()
	case 10:
		p.advise()
	case 11:
		p.reconcile(t)
	}
}

func mustAgree(t *testing.T, p *pair) {
	t.Helper()
	if got := p.owners(t); got != p.model.pages {
		for i := range got {
			if got[i] != p.model.pages[i] {
				t.Errorf("page %d: %+v, want %+v", i, got[i], p.model.pages[i])
			}
		}
	}
	if got, want := withoutNames(p.set.Tallies()), withoutNames(p.model.tallies); !maps.Equal(got, want) {
		t.Errorf("tallies %+v, want %+v", got, want)
	}
	if !maps.Equal(p.set.Releases(), p.model.releases) {
		t.Errorf("releases %+v, want %+v", p.set.Releases(), p.model.releases)
	}
}

// withoutNames counts files, and what the maps show to be something else, together: pages do not know of which call they are.
func withoutNames(tallies map[Holder]Tally) map[Holder]Tally {
	sums := make(map[Holder]Tally)
	for by, t := range tallies {
		if by.Kind == growth.KindShmem {
			by.Kind = growth.KindFile
		}
		sum := sums[by]
		sums[by] = Tally{sum.Calls + t.Calls, sum.Bytes + t.Bytes}
	}
	return sums
}
