package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A column is a whole number of a row, by name.
type column[T any] struct {
	name  string
	value func(*T) *int64
	// later: files of before it was thought of are without it, and read as if nothing were known of it.
	later bool
}

// A layout is what a file of rows in the order of time looks like: the time in seconds with three decimals, then columns of
// whole numbers. A value that is growth.Unknown is an empty field.
type layout[T any] struct {
	elapsed func(*T) *time.Duration
	columns []column[T]
}

func (l *layout[T]) header() []string {
	names := []string{"time_s"}
	for _, c := range l.columns {
		names = append(names, c.name)
	}
	return names
}

// before is the layout of files of before the columns that came later; the others are in absent.
func (l *layout[T]) before() (older layout[T], absent []column[T]) {
	older.elapsed = l.elapsed
	for _, c := range l.columns {
		if c.later {
			absent = append(absent, c)
		} else {
			older.columns = append(older.columns, c)
		}
	}
	return older, absent
}

// A RowWriter writes rows as CSV while they come: a header, then one line each, handed on at once.
type RowWriter[T any] struct {
	csv    *csv.Writer
	layout *layout[T]
}

func newRowWriter[T any](w io.Writer, l *layout[T]) (*RowWriter[T], error) {
	t := &RowWriter[T]{csv.NewWriter(w), l}
	return t, t.flush(l.header())
}

// Write writes rows. The error is that of the underlying writer, not wrapped; after the first error nothing more is
// written, so that no line follows half a line.
func (t *RowWriter[T]) Write(rows ...T) error {
	for i := range rows {
		if err := t.csv.Write(t.fields(&rows[i])); err != nil {
			return err
		}
	}
	t.csv.Flush()
	return t.csv.Error()
}

func (t *RowWriter[T]) fields(row *T) []string {
	ms := t.layout.elapsed(row).Round(time.Millisecond).Milliseconds()
	fields := []string{fmt.Sprintf("%d.%03d", ms/1000, ms%1000)}
	for _, c := range t.layout.columns {
		field := ""
		if value := *c.value(row); value != growth.Unknown {
			field = strconv.FormatInt(value, 10)
		}
		fields = append(fields, field)
	}
	return fields
}

func (t *RowWriter[T]) flush(fields []string) error {
	if err := t.csv.Write(fields); err != nil {
		return err
	}
	t.csv.Flush()
	return t.csv.Error()
}
