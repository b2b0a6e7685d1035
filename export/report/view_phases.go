package report

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

type timedRow struct {
	at float64 // seconds
	phaseRow
}

// phaseRowsOf are phases, spikes, marks and changes of the probes, in the order of time.
func phaseRowsOf(s *export.Summary) []phaseRow {
	all := phaseSpans(s.Verdict, "")
	for _, spike := range spikesOf(s) {
		all = append(all, spanRow(spike.FromS, spike.ToS, "spike", ""))
	}
	if d := deviceOf(s); d != nil {
		all = append(all, phaseSpans(d.Verdict, "device: ")...)
	}
	for _, m := range s.Marks {
		all = append(all, timedRow{m.AtS, phaseRow{words.Seconds(m.AtS), "", "mark: " + m.Text, ""}})
	}
	for _, c := range changesIn(s) {
		all = append(all, timedRow{c.AtS, phaseRow{words.Seconds(c.AtS), "", "probes: " + c.Text, ""}})
	}
	slices.SortStableFunc(all, func(a, b timedRow) int { return cmp.Compare(a.at, b.at) })
	var rows []phaseRow
	for _, row := range all {
		rows = append(rows, row.phaseRow)
	}
	return rows
}

func spanRow(from, to float64, what, rate string) timedRow {
	return timedRow{from, phaseRow{words.Seconds(from), words.Seconds(to), what, rate}}
}

// phaseSpans are the phases of a verdict that have a beginning and an end.
func phaseSpans(v export.Verdict, of string) []timedRow {
	var spans []timedRow
	for _, p := range v.Phases {
		rate := ""
		if p.RateBytesPerMin != nil {
			rate = words.Signed(*p.RateBytesPerMin) + "/min"
		}
		if p.FromS != nil && p.ToS != nil {
			spans = append(spans, spanRow(*p.FromS, *p.ToS, of+phaseText(p.Kind), rate))
		}
	}
	return spans
}
