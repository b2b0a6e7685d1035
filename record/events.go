package record

import (
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/objects"
)

// An Event is one of the types of this file. A recorder reports it at once, from the goroutine that
// records: the caller logs it, or shows it.
type Event any

// A TreeChange is a change of the process tree.
type TreeChange struct{ tracer.Change }

// An OverheadChange is a change of the probes, by the controller of the overhead.
type OverheadChange struct{ growth.OverheadChange }

// A Warning is a note that the summary has, too.
type Warning struct{ summary.Note }

// A SnapshotTaken has a snapshot, in a spike of RSS alone where InSpike is set.
type SnapshotTaken struct {
	*growth.Snapshot
	InSpike bool
}

// An ObjectsRead has the censuses of one piece of work, and the errors of it and of its search.
type ObjectsRead struct {
	Censuses []*objects.Census
	Err      error
}

// A SlowSearch is reported where the end of a trace waits for a search.
type SlowSearch struct{}

// A ResultSoFar is the result of a trace that goes on. The caller writes it, so that it stays if
// allocscope is killed.
type ResultSoFar struct{ *Result }

// A LeakFound is the alarm: enough checks in a row have found a leak, of RSS or on a GPU.
type LeakFound struct {
	conclude.Process
	OnGPU bool
}

// A LossProven is a search whose objects are proven to be lost: nothing refers to them.
type LossProven struct{ keeper.Search }

// A LimitNear is growth that meets a limit of memory soon.
type LimitNear struct{ conclude.Process }

// A Settled is the verdict that ends a trace with UntilSettled.
type Settled struct{ conclude.Process }

// An Unsettled is a verdict that a longer trace may change.
type Unsettled struct {
	conclude.Process
	Next, End time.Duration // Elapsed of the next check, and of the end at the latest
}

// A FileFailed is the first file that could not be written.
type FileFailed struct{ Err error }

// Progress is the state of a trace after one of its samples.
type Progress struct {
	Sample   growth.Sample
	Latest   *growth.Snapshot // nil: none was taken yet
	Events   growth.Events
	Losses   []growth.Loss
	Overhead *summary.Overhead // nil: unknown
	// End of the trace, by the clock of Sample.Elapsed; 0: until Ctrl-C. UntilSettled: it ends when
	// the verdict is settled, and then at the latest.
	End          time.Duration
	UntilSettled bool
}

// TotalLosses returns the sum of all losses, and the name of the largest; "" without any. A call
// that took the stack of an earlier one from the same place is not lost.
func (p *Progress) TotalLosses() (sum uint64, largest string) {
	var most growth.Loss
	for _, l := range p.Losses {
		if l.Kind == growth.LossSiteStacks {
			continue
		}
		sum += l.Count
		if l.Count > most.Count {
			most = l
		}
	}
	return sum, words.Loss(most)
}
