package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// timelineColumns are the names of the CSV file's columns. All but the first are whole numbers, in the order of counters.
var timelineColumns = []string{
	"time_s", "rss_bytes", "pss_bytes", "private_bytes", "swap_bytes", "virtual_bytes", "threads", "minor_faults", "major_faults",
}

// counters points at the values of a sample in the order of the columns that follow the time.
func counters(s *growth.Sample) []*int64 {
	return []*int64{&s.RSS, &s.PSS, &s.Private, &s.Swap, &s.Virtual, &s.Threads, &s.MinorFaults, &s.MajorFaults}
}

// A TimelineWriter writes a timeline as CSV while it grows: a header, then one row a sample, each handed on at once.
//
// The time is in seconds since the start of the trace with three decimals; a value that is growth.Unknown is an empty field.
type TimelineWriter struct{ csv *csv.Writer }

// NewTimelineWriter writes the header. The error is that of w, not wrapped.
func NewTimelineWriter(w io.Writer) (*TimelineWriter, error) {
	t := &TimelineWriter{csv.NewWriter(w)}
	return t, t.row(timelineColumns)
}

// Write writes one sample. The error is that of the underlying writer, not wrapped; after the first error nothing more is
// written, so that no row follows half a row.
func (t *TimelineWriter) Write(sample growth.Sample) error {
	ms := sample.Elapsed.Round(time.Millisecond).Milliseconds()
	row := []string{fmt.Sprintf("%d.%03d", ms/1000, ms%1000)}
	for _, value := range counters(&sample) {
		field := ""
		if *value != growth.Unknown {
			field = strconv.FormatInt(*value, 10)
		}
		row = append(row, field)
	}
	return t.row(row)
}

func (t *TimelineWriter) row(fields []string) error {
	if err := t.csv.Write(fields); err != nil {
		return err
	}
	t.csv.Flush()
	return t.csv.Error()
}
