// Package report makes the report of a trace: one HTML page that answers in the order in which people ask.
package report

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

//go:embed report.html
var bodyText string

var body = template.Must(template.New("report").Parse(bodyText))

// A Trace is what the files of a folder say.
type Trace struct {
	Summary export.Summary
	// Rows of timeline.csv; none: the file is missing.
	Rows []growth.Row
	// Growth is growth.pb.gz; nil: the file is missing.
	Growth *profile.Profile
	// Missing says which files could not be read, and why, a sentence each.
	Missing []string
}

// Read reads the files of a folder. Only a summary.json that cannot be read is an error; what else is missing is named.
func Read(folder *export.Folder) (*Trace, error) { panic("not written") }

// Write writes the report of a trace. The error is that of w.
func Write(w io.Writer, t *Trace) error { panic("not written") }
