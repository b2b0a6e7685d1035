package tree

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
)

func TestProcessesAreSortedByTheirParents(t *testing.T) {
	tree := New(nil, true)
	tree.byPID[100] = &Member{}
	tree.others = map[int]standing{0: outside, 5: leftOut}
	parents := map[int]int{
		1: 0, 2: 0, 30: 1, // of the machine
		101: 100, 90: 101, 80: 90, 70: 80, // PIDs have wrapped around
		6: 5, 102: 100, // under one that was left out; a zombie
		200: 999, 201: 200, // somebody's whom the list did not have
		300: 300, // impossible
	}
	fresh := make(map[int]process.Stat)
	for pid, parent := range parents {
		fresh[pid] = process.Stat{Parent: parent, State: 'S'}
	}
	fresh[102] = process.Stat{Parent: 100, State: 'Z'}
	var got []int
	for _, n := range tree.sort(fresh) {
		got = append(got, n.pid)
		if parent := n.stat.Parent; parent < 100 && parent != 5 && len(got) > 1 && !slices.Contains(got, parent) {
			t.Errorf("%d comes before its parent", n.pid)
		}
	}
	mustBe(t, "inside", got, []int{6, 70, 80, 90, 101})
	for pid, want := range map[int]standing{1: outside, 2: outside, 30: outside, 102: ended, 200: 0, 201: 0, 300: 0, 70: 0} {
		if tree.others[pid] != want {
			t.Errorf("%d stands as %d, want %d", pid, tree.others[pid], want)
		}
	}
}
