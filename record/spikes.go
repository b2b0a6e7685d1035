package record

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/spike"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

// A spikeWatcher follows the RSS of all traced processes, and takes snapshots in their spikes.
type spikeWatcher struct {
	processes map[*growth.ProcessHistory]*spike.Watch
	costs     duty.Limiter
}

func newSpikeWatcher() spikeWatcher {
	return spikeWatcher{
		processes: make(map[*growth.ProcessHistory]*spike.Watch),
		costs:     duty.Limiter{Burst: duty.Table[duty.Spikes].Advance},
	}
}

// addSample adds the last sample of each traced process, and returns whether one is in a spike.
func (w *spikeWatcher) addSample(history *growth.History) (inSpike bool) {
	now := history.Rows[len(history.Rows)-1].Elapsed
	for _, p := range history.Processes {
		if !p.Traced || p.Last != now || len(p.Timeline) == 0 {
			continue
		}
		watch := w.processes[p]
		if watch == nil {
			watch = &spike.Watch{PID: p.PID}
			w.processes[p] = watch
		}
		watch.Add(p.Timeline[len(p.Timeline)-1])
		inSpike = inSpike || watch.InSpike()
	}

	for p := range w.processes {
		if !slices.Contains(history.Processes, p) { // the history is bounded
			delete(w.processes, p)
		}
	}
	return inSpike
}

// has reports whether a snapshot that was taken now lies in a spike of any process.
func (w *spikeWatcher) has(s *growth.Snapshot) bool {
	for p, watch := range w.processes {
		if p.IsIn(s) && watch.HasSpike(s) {
			return true
		}
	}
	return false
}

// addSnapshot adds a snapshot. isExtra is true of one that was taken for a spike alone.
func (w *spikeWatcher) addSnapshot(s *growth.Snapshot, isExtra bool) {
	for p, watch := range w.processes {
		if p.IsIn(s) {
			watch.AddSnapshot(s, isExtra)
		}
	}
}

// isDue reports whether a snapshot now would show more of a spike, and may be paid for. next is
// when the next one of the others is due: one that comes soon will do.
func (w *spikeWatcher) isDue(of Session, next, samplePeriod time.Duration) bool {
	due := false
	if next-of.Elapsed() < 2*samplePeriod {
		return false
	}
	for _, watch := range w.processes {
		due = due || watch.IsDue()
	}
	if !due {
		return false
	}

	o := of.Overhead()
	if o.OwnLimit() != 0 {
		w.costs.Share = o.Use().Share(duty.Spikes)
		return w.costs.Allowed(time.Time{}.Add(o.Elapsed))
	}
	return true
}

// take takes a snapshot in a spike, between the others. They do not have it: memory that is free
// again in a moment is neither growth nor a fall. It returns its cost in CPU time.
func (w *spikeWatcher) take(of Session, report func(Event)) (cost time.Duration, err error) {
	var snapshot *growth.Snapshot
	cost = process.MeasureCPUTime(func() { snapshot, err = of.SpikeSnapshot() })
	w.costs.Spend(cost)
	if err != nil || of.Err() != nil {
		return cost, err
	}

	report(SnapshotTaken{snapshot, true})
	w.addSnapshot(snapshot, true)
	return cost, nil
}

// maxSpikeStacks bounds the stacks of a spike in the summary.
const maxSpikeStacks = 10

// spikeMemory is the memory that is alive in the spikes of the main process only, which it writes
// as a profile, too; nil: it has no spikes, or no process was traced.
func (e *Ending) spikeMemory() *summary.SpikeMemory {
	r := e.recorder
	watch := r.spikes.processes[e.result.Main.History]
	if watch == nil || watch.Spikes().Count == 0 {
		return nil
	}

	spikes := watch.Spikes()
	if c := spikes.Highest; c != nil {
		r.profiles.write(folder.SpikesFile, c.Contents(), c.Before.Elapsed, c.At)
	}
	return summary.SpikeMemoryOf(spikes, r.options.Components, maxSpikeStacks)
}
