package rows

import (
	"io"
	"math"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
)

// An ObjectRow is a row of objects.csv: the objects of one type of a process at one census.
type ObjectRow struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	PID     int64
	// Type is its name with its module.
	Type string
	// Count and Bytes of the objects, and half the width of the 95% interval of Count; 0: exact.
	Count, Bytes, Margin int64
}

const (
	maxObjectTypes = 50  // of a census
	maxTypeBytes   = 300 // of the name of a type
)

// ObjectRowsOf returns the rows of a census: the types with most bytes.
func ObjectRowsOf(c *census.Result) []ObjectRow {
	var rows []ObjectRow
	for _, t := range c.Types[:min(maxObjectTypes, len(c.Types))] {
		rows = append(rows, ObjectRow{
			Elapsed: c.Elapsed, PID: int64(c.PID),
			Type:  growth.Truncate(growth.Printable(t.Type), maxTypeBytes),
			Count: int64(math.Round(t.Count)), Bytes: int64(math.Round(t.Bytes)),
			Margin: int64(math.Ceil(t.Margin)),
		})
	}
	return rows
}

var objectsLayout = layout[ObjectRow]{
	elapsed: func(r *ObjectRow) *time.Duration { return &r.Elapsed },
	columns: []column[ObjectRow]{
		{name: "pid", value: func(r *ObjectRow) *int64 { return &r.PID }},
		{name: "type", text: func(r *ObjectRow) string { return r.Type }},
		{name: "count", value: func(r *ObjectRow) *int64 { return &r.Count }},
		{name: "bytes", value: func(r *ObjectRow) *int64 { return &r.Bytes }},
		{name: "margin", value: func(r *ObjectRow) *int64 { return &r.Margin }},
	},
}

// NewObjectsWriter writes the header of objects.csv. The error comes from w, unwrapped.
func NewObjectsWriter(w io.Writer) (*Writer[ObjectRow], error) {
	return newRowWriter(w, &objectsLayout)
}
