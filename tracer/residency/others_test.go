package residency

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

// missingMembers returns members whose processes do not exist.
func missingMembers(count int) (members []*tree.Member) {
	for i := range count {
		members = append(members, &tree.Member{Process: &process.Process{PID: 1<<30 + i}})
	}
	return members
}

// countScans takes snapshots of members whose scans cost the same each. It returns how often each
// was scanned, by PID.
func countScans(
	o *Others, members []*tree.Member, cost, interval time.Duration, snapshots int,
) map[int]int {
	scans := make(map[int]int)
	now := time.Now()
	for range snapshots {
		o.Begin(members, now)
		for _, member := range members {
			if m := o.Members[member.Process.PID]; o.isDue(m) {
				o.spend(m, cost, now)
				scans[member.Process.PID]++
			}
		}
		now = now.Add(interval)
	}
	return scans
}

// newOthers returns members whose scans may take half a hundredth of a core.
func newOthers() Others { return Others{Limit: duty.NewBudget(0).Account(duty.OtherProcesses)} }

func TestOthers(t *testing.T) {
	t.Run("many members are scanned in turns within the budget", func(t *testing.T) {
		const count, snapshots, interval = 50, 600, 5 * time.Second
		costs := []time.Duration{5 * time.Millisecond, 60 * time.Millisecond, time.Second}
		for _, cost := range costs {
			o := newOthers()
			members := missingMembers(count)
			scans := countScans(&o, members, cost, interval, snapshots)

			total, least, most := 0, snapshots, 0
			for _, member := range members {
				n := scans[member.Process.PID]
				total, least, most = total+n, min(least, n), max(most, n)
			}

			spent := time.Duration(total) * cost
			limit := time.Duration(o.Limit.Share() * float64(interval*snapshots))
			advance := duty.Table[duty.OtherProcesses].Advance
			if spent > limit+advance+cost || spent < limit-cost {
				t.Errorf("at %s a scan: %s spent, want %s", cost, spent, limit)
			}
			if most-least > 1 {
				t.Errorf("at %s a scan: one member %d times, another %d times", cost, least, most)
			}
		}
	})

	t.Run("few members are scanned for each snapshot", func(t *testing.T) {
		const snapshots = 100
		o := newOthers()
		scans := countScans(&o, missingMembers(4), 5*time.Millisecond, 5*time.Second, snapshots)
		for pid, n := range scans {
			if n != snapshots {
				t.Errorf("PID %d: scanned for %d of %d snapshots", pid, n, snapshots)
			}
		}
	})

	t.Run("ended members are forgotten", func(t *testing.T) {
		o := newOthers()
		members := missingMembers(4)
		o.Begin(members, time.Now())
		o.Begin(members[2:], time.Now())
		if len(o.Members) != 2 || o.Members[members[2].Process.PID] == nil {
			t.Errorf("%d members known, want 2", len(o.Members))
		}
	})

	t.Run("rows of a reading sum to RSS", func(t *testing.T) {
		o := newOthers()
		p := ownTracker(t).process
		members := append(missingMembers(1), &tree.Member{
			Process: p, Info: growth.Process{PID: p.PID},
		})
		o.Begin(members, time.Now())

		snapshot := &growth.Snapshot{}
		for _, member := range members {
			o.AddTo(snapshot, member, make(CountedFiles), o.TrackerOf)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}

		if len(snapshot.Residents) != 1 {
			t.Fatalf("readings of %d processes, want 1", len(snapshot.Residents))
		}
		var sum int64
		for _, row := range snapshot.Others {
			sum += row.ResidentBytes
		}
		if r := snapshot.Residents[0]; r.PID != p.PID || r.RSS <= 0 || sum != r.RSS {
			t.Errorf("PID %d: rows sum to %d bytes, RSS is %d", r.PID, sum, r.RSS)
		}
	})
}
