package view

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

//go:embed index.html
var indexText string

var indexBody = template.Must(template.New("index").Parse(indexText))

// index is the page that leads to all others. It reads the folder for each request.
type index struct {
	folder  *folder.Folder
	source  bool
	entries []entry
}

// entry is a profile, and why it cannot be shown; nil: it can.
type entry struct {
	profileRef
	err error
}

// Error implements error. It is empty where there is none.
func (e entry) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// indexView is the data that the template shows.
type indexView struct {
	Folder string
	// Trace is nil where the summary cannot be read, for the reason NoSummary.
	Trace     *traceView
	NoSummary string
	// NoReport and NoSnapshots are why there are none; empty: there are.
	NoReport, NoSnapshots string
	Profiles              []entry
	Snapshots             []snapshotView
	GPUSnapshots          []string // names of files
	Source                bool
	SourceOff             string
}

type traceView struct {
	Command, PID, Duration, Ended, Started, StartedISO string
	// Class and Name of the verdict, and the Result below it.
	Class, Name string
	Result      []words.Block
}

// snapshotView is a snapshot with the time since tracing started or, where that is unknown, its
// number.
type snapshotView struct{ Path, At string }

// ServeHTTP serves the page.
func (i *index) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	v := i.view()
	var body strings.Builder
	if err := indexBody.Execute(&body, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	title := "allocscope"
	if v.Trace != nil {
		title += ": " + v.Trace.Command
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Write(w, page.Page{
		Title: title,
		Body:  template.HTML(body.String()),
	}) // the browser may have gone
}

func (i *index) view() indexView {
	v := indexView{
		Folder:    i.folder.Path(),
		Profiles:  i.entries,
		Source:    i.source,
		SourceOff: sourceOff,
	}
	var sum *summary.Summary
	err := i.folder.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		sum, err = summary.Read(r)
		return err
	})

	if err != nil {
		v.NoSummary = "There is no verdict, since the summary cannot be read: " + err.Error()
	} else {
		v.Trace = traceOf(sum, i.folder.Path())
	}

	v.NoReport = reportMissing(i.folder, i.folder.ReadFile(folder.ReportFile,
		func(io.Reader) error { return nil }))
	numbers, err := i.folder.Snapshots()
	if err != nil {
		v.NoSnapshots = err.Error()
	}

	v.Snapshots = snapshotViews(numbers, sum)
	v.GPUSnapshots, _ = i.folder.GPUSnapshots() // Snapshots had the error
	return v
}

func traceOf(s *summary.Summary, dir string) *traceView {
	result := words.ResultOf(s, words.Place{Dir: dir, Sudo: true})
	return &traceView{
		Command: growth.Printable(s.Process.Command), PID: strconv.Itoa(s.Process.PID),
		Duration: units.Seconds(s.DurationS), Ended: words.Ended(s),
		Started: s.Started.Format(time.DateTime), StartedISO: s.Started.Format(time.RFC3339),
		Class: string(result.Class), Name: result.Name, Result: result.Blocks,
	}
}

// snapshotViews returns the snapshots with their times, where the summary has one for each.
func snapshotViews(numbers []int, s *summary.Summary) []snapshotView {
	timed := s != nil && len(s.SnapshotsS) == len(numbers)
	var views []snapshotView
	for i, number := range numbers {
		at := fmt.Sprintf("number %d", number)
		if timed {
			at = units.Duration(time.Duration(s.SnapshotsS[i] * float64(time.Second)))
		}
		views = append(views, snapshotView{snapshotRef(number).Path, at})
	}
	return views
}
