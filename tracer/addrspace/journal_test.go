package addrspace

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

func TestJournalTake(t *testing.T) {
	var j Journal
	for _, time := range []uint64{30, 10, 40, 20} {
		j.Add(bpf.Event{Tgid: 1, Time: time})
		j.Add(bpf.Event{Tgid: 2, Time: time})
	}
	mustTake := func(pid uint32, until uint64, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, call := range j.Take(pid, until) {
			got = append(got, call.Time)
		}
		if !slices.Equal(got, want) {
			t.Errorf("calls of process %d until %d: %d, want %d", pid, until, got, want)
		}
	}

	mustTake(1, 25, 10, 20)
	j.Add(bpf.Event{Tgid: 1, Time: 26})
	mustTake(1, 30, 26, 30)
	mustTake(1, 39)
	mustTake(1, 40, 40)
	mustTake(1, 1000)
	j.Forget(2)
	mustTake(2, 1000)
}

// A mapping that came and went counts like one of which both calls were seen.
func TestCountPairs(t *testing.T) {
	pair := func(change func(*Pair)) Pair {
		p := Pair{Tally: bpf.Tally{Objects: 3, Bytes: 12 * page}}
		p.Stack, p.Flags, p.Descriptor = 1, private, noFile
		change(&p)
		return p
	}
	pairs := []Pair{
		pair(func(*Pair) {}),
		pair(func(p *Pair) { p.Flags, p.Descriptor = 0, 0 }),
		pair(func(p *Pair) { p.ByAllocator = 1 }),
	}

	s := fourPages()
	for range 2 { // the counts are those since tracing started
		s.CountPairs(pairs, true)
		mustHaveMapped(t, s, 1, growth.KindMmap, total(4, 16))
		mustHaveMapped(t, s, 1, growth.KindFile, total(3, 12))
		mustHaveReleased(t, s, "munmap", total(9, 36))
	}
	mustHold(t, s, mapped(0, 4, 1))

	s.CountPairs(pairs, false) // no function of the allocator is probed
	mustHaveMapped(t, s, 1, growth.KindMmap, total(7, 28))
}
