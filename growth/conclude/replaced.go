package conclude

import (
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Generations are the workers of a group that have ended, as far as they were traced, with the call
// sites of the memory that they held then.
type Generations struct {
	// Traced is the number of the workers.
	Traced int
	// Suspects of all of them. Share is of the growth of their RSS while they were traced.
	Suspects []trend.Suspect
}

// judgeReplaced judges the sum of workers that are replaced. It is a sawtooth, which grows for
// certain where it rises by more than its living workers gain in their lives.
func judgeReplaced(
	g *growth.Group, setting verdict.Setting, criteria verdict.Criteria,
) verdict.Verdict {
	start := math.Inf(-1) // the end of a worker is no restart of the group
	setting.Start = &start

	v := verdict.Judge(g.History, setting, criteria)
	if v.Class.Grows() && v.Rate*v.Length < float64(int64(g.Count)*g.Grown) {
		v.Class, v.Reason = verdict.ClassTooShort, verdict.ReasonTooNoisy
	}
	return v
}

// generationsOf adds up the traced workers of a group that grew until they were replaced; nil: none
// was.
func generationsOf(t *Trace, key growth.GroupKey) *Generations {
	var g Generations
	var trends []trend.StackTrend
	grown := int64(0)

	for _, p := range t.History.Traced() {
		if p.Group != key || !t.History.WasReplaced(p) {
			continue
		}
		own, _ := t.caseOf(p).OwnSnapshots()
		own = slices.DeleteFunc(own, func(s *growth.Snapshot) bool {
			return s.Elapsed > p.HeldUntil() // it frees its memory
		})
		if len(own) == 0 {
			continue
		}
		last := own[len(own)-1]
		gained := p.Timeline.RSSAt(last.Elapsed) - p.Timeline.RSSAt(p.From)
		if gained <= 0 {
			continue
		}

		g.Traced++
		grown += gained
		trends = append(trends, keptAt(last, p.From)...)
	}
	if g.Traced == 0 {
		return nil
	}

	for i := range trends {
		trends[i].Share = trends[i].Growth / float64(grown)
	}
	g.Suspects = trend.Suspects(trends, t.Components)
	return &g
}

// keptAt is the memory of a process that each stack has allocated since a time, when tracing it
// began, and holds at a snapshot.
func keptAt(s *growth.Snapshot, from time.Duration) (kept []trend.StackTrend) {
	seconds := max((s.Elapsed - from).Seconds(), time.Millisecond.Seconds())
	for i := range s.Holdings {
		h := &s.Holdings[i]
		bytes := float64(h.InuseBytes)
		if bytes <= 0 || h.IsResidentOnly() {
			continue
		}
		kept = append(kept, trend.StackTrend{
			Stack: h.Stack, Kind: h.Kind, GPU: h.GPU, Growth: bytes, Low: bytes - h.Margin(),
			High: bytes + h.Margin(), Rate: bytes / seconds,
		})
	}
	return kept
}
