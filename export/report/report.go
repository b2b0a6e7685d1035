// Package report makes the report of a trace: one HTML page that answers in the order in which people ask.
package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/growth"
)

//go:embed report.html
var bodyText string

var body = template.Must(template.New("report").Parse(bodyText))

// A Trace is what the files of a folder say. Nothing in it is trusted.
type Trace struct {
	Summary export.Summary
	// Rows of timeline.csv, whose samples are those of the process that the verdict is about; none: the file is missing.
	Rows []growth.Row
	// Growth is growth.pb.gz; nil: the file is missing. Write changes it: the frames of the allocator are dropped.
	Growth *profile.Profile
	// Missing says which files could not be read, and why, a sentence each.
	Missing []string
}

// Write writes the report of a trace. The error is that of w.
func Write(w io.Writer, t *Trace) error {
	v, data := shownOf(t)
	var out bytes.Buffer
	if err := body.ExecuteTemplate(&out, "body", v); err != nil {
		return err
	}
	title := "allocscope: " + v.Verdict.Name + ": " + v.Command + " (PID " + v.PID + ")"
	return page.Write(w, page.Page{Title: title, Body: template.HTML(out.String()), Data: data})
}

// shownOf is what the template and the script show of a trace.
func shownOf(t *Trace) (*view, pageData) {
	summary, cut := tamed(&t.Summary)
	data := pageData{Timeline: timelineOf(summary, t.Rows)}
	if err := data.addFlames(t.Growth); err != nil {
		cut = append(cut, "The flame graph is left out: "+clean(err.Error())+".")
	}
	v := viewOf(summary, data)
	v.Limits = append(v.Limits, cut...)
	for _, sentence := range t.Missing {
		v.Limits = append(v.Limits, clean(sentence))
	}
	return v, data
}
