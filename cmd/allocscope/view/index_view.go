package view

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/process"
)

func (i *index) view() indexView {
	v := indexView{Folder: i.folder.Path(), Profiles: i.entries, Source: i.source, SourceOff: sourceOff}
	var s *summary.Summary
	err := i.folder.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		s, err = summary.Read(r)
		return err
	})
	if err != nil {
		v.NoSummary = "There is no verdict, since the summary cannot be read: " + err.Error()
	} else {
		v.Trace = traceOf(s)
	}
	v.NoReport = reportMissing(i.folder, i.folder.ReadFile(folder.ReportFile, func(io.Reader) error { return nil }))
	numbers, err := i.folder.Snapshots()
	if err != nil {
		v.NoSnapshots = err.Error()
	}
	v.Snapshots = snapshotViews(numbers, s)
	return v
}

func traceOf(s *summary.Summary) *traceView {
	lines := words.VerdictLines(s.Verdict, words.AtLimit)
	name, sentence := words.SplitHeadline(lines[0])
	return &traceView{
		Command: process.Printable(s.Process.Command), PID: strconv.Itoa(s.Process.PID), Duration: units.Seconds(s.DurationS), Ended: words.End(s.Ended),
		Started: s.Started.Format(time.DateTime), StartedISO: s.Started.Format(time.RFC3339),
		Class: string(s.Class), Name: name, Sentence: sentence, Lines: lines[1:],
	}
}

// snapshotViews gives the snapshots their times, where the summary knows one for each.
func snapshotViews(numbers []int, s *summary.Summary) []snapshotView {
	timed := s != nil && len(s.SnapshotsS) == len(numbers)
	var views []snapshotView
	for i, number := range numbers {
		at := fmt.Sprintf("number %d", number)
		if timed {
			at = units.Duration(time.Duration(s.SnapshotsS[i] * float64(time.Second)))
		}
		views = append(views, snapshotView{snapshotSubject(number).Path, at})
	}
	return views
}
