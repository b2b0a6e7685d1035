package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestRowsNote(t *testing.T) {
	row := func(low int64) summary.Accumulation { return summary.Accumulation{RateLow: &low} }
	off := []summary.Source{
		{Name: "heap", State: summary.SourceOff}, {Name: "fault", State: summary.SourceAttached},
	}
	for want, s := range map[string]summary.Summary{
		"since the baseline.":           {},
		"Source heap was not attached,": {Sources: off},
		"Shares are of all stacks that grew": {
			Accumulating: []summary.Accumulation{row(1), row(-1)}, Sources: off,
		},
		"None of it is proven": {Accumulating: []summary.Accumulation{row(0), row(-1)}},
		"grew.":                {Accumulating: []summary.Accumulation{{}}},
	} {
		note := rowsNote(&s)
		if !strings.Contains(note, want) ||
			strings.Contains(note, "proven") != strings.Contains(want, "proven") ||
			strings.Contains(note, "attached") != strings.Contains(want, "attached") {
			t.Errorf("%q, want %q", note, want)
		}
	}

	t.Run("exact rows", func(t *testing.T) {
		s := leakingSummary()
		a := &s.Accumulating[0]
		a.RateHigh, a.Objects = a.RateLow, 0
		if row := rowsOf(s.Accumulating,
			s.SnapshotsS)[0]; row.Interval != "exact" || row.Objects != "-" {
			t.Errorf("%s, %s objects", row.Interval, row.Objects)
		}
	})
}

func TestCurveText(t *testing.T) {
	s, flat := leakingSummary(), timelineRows(60)
	for i := range flat {
		flat[i].RSS = 112*mib + int64(i%2)
	}
	if got := timelineText(&s, timelineOf(&s, flat)); !strings.HasPrefix(got,
		"RSS over 60 s: never more than 112 MiB. LEAK") {
		t.Error(got)
	}
}

// Each limit is said of the traces alone that it is true of.
func TestLimits(t *testing.T) {
	for says, edit := range map[string]func(*summary.Summary){
		"from one sample every":        func(s *summary.Summary) { s.Sources[0].State = summary.SourceOff },
		"of the pages were scanned":    func(s *summary.Summary) { s.Residents[0].Scanned = 0.9999 },
		"A trace of this length":       func(s *summary.Summary) { s.DurationS = 4 * 3600 },
		"their memory, without stacks": func(s *summary.Summary) { s.Groups = nil },
	} {
		s := leakingSummary()
		s.Class = verdict.ClassSuspected
		isSaid := func() bool {
			return slices.ContainsFunc(limitsOf(&s),
				func(limit string) bool { return strings.Contains(limit, says) })
		}
		before := isSaid()
		if edit(&s); !before || isSaid() {
			t.Errorf("%q: %v, then %v", says, before, isSaid())
		}
	}
}
