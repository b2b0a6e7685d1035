package residency

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

// manyMembers exist nowhere.
func manyMembers(count int) (members []*tree.Member) {
	for i := range count {
		members = append(members, &tree.Member{Process: &process.Process{PID: 1<<30 + i}})
	}
	return members
}

// lookInTurns takes snapshots of members of which each costs the same, and tells how often each was looked at.
func lookInTurns(k *Others, members []*tree.Member, cost, every time.Duration, snapshots int) map[int]int {
	looks := make(map[int]int)
	now := time.Now()
	for range snapshots {
		k.Begin(members, now)
		for _, m := range members {
			if o := k.Members[m.Process.PID]; k.isDue(o) {
				k.pay(o, cost, now)
				looks[m.Process.PID]++
			}
		}
		now = now.Add(every)
	}
	return looks
}

func TestMembersThatAreNotTracedAreLookedAtByTurnsWithinTheirBudget(t *testing.T) {
	const count, snapshots, every = 50, 600, 5 * time.Second
	for _, cost := range []time.Duration{5 * time.Millisecond, 60 * time.Millisecond, time.Second} {
		var k Others
		looks := lookInTurns(&k, manyMembers(count), cost, every, snapshots)
		total, least, most := 0, snapshots, 0
		for _, m := range manyMembers(count) {
			n := looks[m.Process.PID]
			total, least, most = total+n, min(least, n), max(most, n)
		}
		spent, may := time.Duration(total)*cost, time.Duration(OthersShare*scanCPUShare*float64(every*snapshots))
		if spent > may+maxCredit+cost || spent < may-cost {
			t.Errorf("at %s a look, %s was spent of %s", cost, spent, may)
		}
		if most-least > 1 {
			t.Errorf("at %s a look, one member was looked at %d times and another %d times", cost, least, most)
		}
	}
}

func TestFewMembersAreLookedAtInEachSnapshot(t *testing.T) {
	const count, snapshots = 4, 100
	var k Others
	for pid, n := range lookInTurns(&k, manyMembers(count), 5*time.Millisecond, 5*time.Second, snapshots) {
		if n != snapshots {
			t.Errorf("PID %d was looked at in %d of %d snapshots", pid, n, snapshots)
		}
	}
}

func TestMembersThatAreGoneAreForgotten(t *testing.T) {
	var k Others
	members := manyMembers(4)
	k.Begin(members, time.Now())
	k.Begin(members[2:], time.Now())
	if len(k.Members) != 2 || k.Members[members[2].Process.PID] == nil {
		t.Errorf("%d members are known of 2", len(k.Members))
	}
}
