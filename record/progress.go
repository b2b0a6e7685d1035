package record

import (
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// Progress is the state of a trace after one of its samples.
type Progress struct {
	Sample   growth.Sample
	Latest   *growth.Snapshot // nil: none was taken yet
	Events   tracer.Events
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
