// Package report makes the report of a trace: one HTML page, in the order in which people ask.
package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/rows"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

//go:embed report.html
var bodyText string

var body = template.Must(template.New("report").Parse(bodyText))

// A Trace is the content of a trace's folder. Nothing in it is trusted.
type Trace struct {
	Summary summary.Summary
	// Dir is the folder, for the commands of the result.
	Dir string
	// Rows of timeline.csv, with the samples of the main process; empty: the file is missing.
	Rows []growth.Row
	// Growth is growth.pb.gz; nil: the file is missing. Write removes the frames of the allocator
	// from it.
	Growth *pprof.Profile
	// Missing names the files that could not be read, a sentence each.
	Missing []string
}

// Write writes the report of a trace. The error comes from w.
func Write(w io.Writer, t *Trace) error {
	v, data := pageOf(t)
	var out bytes.Buffer
	if err := body.ExecuteTemplate(&out, "body", v); err != nil {
		return err
	}
	title := "allocscope: " + v.Name + ": " + v.Command + " (PID " + v.PID + ")"
	return page.Write(w, page.Page{Title: title, Body: template.HTML(out.String()), Data: data})
}

// pageOf returns the data of the template and of the script.
func pageOf(t *Trace) (*view, pageData) {
	summary, notes := sanitized(&t.Summary)
	data := pageData{Timeline: timelineOf(summary, t.Rows)}
	if err := data.addFlames(t.Growth); err != nil {
		notes = append(notes, "The flame graph is left out: "+clean(err.Error())+".")
	}

	v := viewOf(summary, clean(t.Dir), data)
	v.Limits = append(v.Limits, notes...)

	for _, sentence := range t.Missing {
		v.Limits = append(v.Limits, clean(sentence))
	}

	return v, data
}

// Bounds on the input.
const (
	maxTimelineRows = 500_000   // rows of timeline.csv: months, as a long trace writes ever fewer
	maxProcessRows  = 5_000_000 // rows of processes.csv
)

// Read reads the files of a folder. Only an unreadable summary.json is an error. Other files that
// cannot be read are named in Missing. Of a damaged timeline.csv all rows before the damage are
// used.
func Read(dir *folder.Folder) (*Trace, error) {
	t, err := readTables(dir)
	if err == nil {
		t.note(dir.ReadFile(folder.GrowthFile, t.readGrowth))
	}
	return t, err
}

// ReadTables is Read without Growth, and with a Summary as ReadSummary returns it.
func ReadTables(dir *folder.Folder) (*Trace, error) {
	t, err := readTables(dir)
	if err == nil {
		s, notes := sanitized(&t.Summary)
		t.Summary, t.Missing = *s, append(t.Missing, notes...)
	}
	return t, err
}

func readTables(dir *folder.Folder) (*Trace, error) {
	t := Trace{Dir: dir.Path()}
	read, err := readSummary(dir)
	if err != nil {
		return nil, err
	}
	t.Summary = *read

	t.note(dir.ReadFile(folder.TimelineFile, t.readRows))
	if severalTraced(&t.Summary) {
		t.note(t.readOwn(dir))
	}
	return &t, nil
}

func readSummary(dir *folder.Folder) (s *summary.Summary, err error) {
	err = dir.ReadFile(folder.SummaryFile, func(r io.Reader) error {
		s, err = summary.Read(r)
		return err
	})
	if err == nil && s.Ended == summary.EndedRunning {
		s.RanOnS = max(0, lastSampleS(dir)-s.DurationS)
	}
	return s, err
}

// lastSampleS is the time of the last row of timeline.csv, in seconds; 0: it has none.
func lastSampleS(dir *folder.Folder) float64 {
	var t Trace
	_ = dir.ReadFile(folder.TimelineFile, t.readRows) // the rows before an error count
	if len(t.Rows) == 0 {
		return 0
	}
	return t.Rows[len(t.Rows)-1].Elapsed.Seconds()
}

// ReadSummary reads summary.json of a folder, with texts that are fit to be shown, and lists and
// numbers that are bounded.
func ReadSummary(dir *folder.Folder) (*summary.Summary, error) {
	s, err := readSummary(dir)
	if err != nil {
		return nil, err
	}
	s, _ = sanitized(s)
	return s, nil
}

// note names a file that could not be read.
func (t *Trace) note(err error) {
	if err != nil {
		t.Missing = append(t.Missing, fmt.Sprintf("Not all could be read: %s.", err))
	}
}

func (t *Trace) readRows(r io.Reader) (err error) {
	bounded := &rows.FirstLines{R: r, Left: maxTimelineRows + 1} // with the header
	t.Rows, err = rows.ReadTimeline(bounded)
	if err != nil && len(t.Rows) > 0 {
		return fmt.Errorf("%w (the rows before are shown)", err)
	}

	if err == nil && bounded.Left == 0 {
		err = fmt.Errorf("only the first %d rows are shown", maxTimelineRows)
	}

	return err
}

// readOwn replaces the samples of timeline.csv, which are sums where several processes are traced,
// by the samples of the main process in processes.csv. They are unknown where it has none.
func (t *Trace) readOwn(dir *folder.Folder) error {
	pid := int64(t.Summary.Process.PID)
	var own []growth.ProcessSample
	err := dir.ReadFile(folder.ProcessesFile, func(r io.Reader) (err error) {
		own, err = rows.ReadProcesses(&rows.FirstLines{R: r, Left: maxProcessRows + 1},
			func(p *growth.ProcessSample) bool { return p.PID == pid })
		return err
	})

	for i := range t.Rows {
		at := t.Rows[i].Elapsed
		for len(own) > 0 && own[0].Elapsed < at {
			own = own[1:]
		}

		sample := growth.UnknownSample()
		if len(own) > 0 && own[0].Elapsed == at {
			sample = own[0].Sample
		}

		sample.Elapsed = at
		t.Rows[i].Sample = sample
	}

	return err
}

func severalTraced(s *summary.Summary) bool {
	traced := 0
	for _, p := range s.Processes {
		if p.Traced {
			traced++
		}
	}
	return traced > 1
}

func (t *Trace) readGrowth(r io.Reader) (err error) {
	t.Growth, err = profile.Read(r)
	return err
}
