package view

import (
	_ "embed"
	"html/template"
	"net/http"
	"strings"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/page"
)

//go:embed index.html
var indexText string

var indexBody = template.Must(template.New("index").Parse(indexText))

// An index is the page that leads to all others. What it says of the folder is as it is when somebody looks.
type index struct {
	folder  *folder.Folder
	source  bool
	entries []entry
}

// An entry is a subject, and why it cannot be shown; nil: it can.
type entry struct {
	subject
	err error
}

// Error is empty where there is none.
func (e entry) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// An indexView is what the template shows.
type indexView struct {
	Folder string
	// Trace is nil where the summary cannot be read, and NoSummary says why.
	Trace     *traceView
	NoSummary string
	// NoReport and NoSnapshots say why there are none; empty: there are.
	NoReport, NoSnapshots string
	Profiles              []entry
	Snapshots             []snapshotView
	Source                bool
	SourceOff             string
}

type traceView struct {
	Command, PID, Duration, Ended, Started, StartedISO string
	// The verdict as a heading: Name is "LEAK", Sentence what follows it, Lines what follows from it.
	Class, Name, Sentence string
	Lines                 []string
}

// A snapshotView is a snapshot with the time since the start of the trace or, where that is not known, its number.
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
	_ = page.Write(w, page.Page{Title: title, Body: template.HTML(body.String())}) // the browser may have gone
}
