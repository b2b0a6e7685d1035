package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// withGaps adds an empty row in each gap, so that no curve leads over it.
func withGaps(rows []growth.Row, gaps []summary.Gap) []growth.Row {
	for _, g := range gaps {
		at := time.Duration((g.FromS + g.ToS) / 2 * float64(time.Second)).Round(time.Millisecond)
		i, isThere := slices.BinarySearchFunc(rows, at,
			func(r growth.Row, at time.Duration) int { return cmp.Compare(r.Elapsed, at) })
		if isThere || i == 0 || i == len(rows) {
			continue
		}
		empty := growth.Row{
			Sample: growth.UnknownSample(),
			Tree: growth.Tree{
				Processes: growth.Unknown, RSS: growth.Unknown, PSS: growth.Unknown,
				Private: growth.Unknown,
			},
		}
		empty.Elapsed = at
		rows = slices.Insert(rows, i, empty)
	}
	return rows
}
