// Package rows writes and reads the tables of a trace as CSV files: timeline.csv, processes.csv,
// gpus.csv and objects.csv. Each begins with a header and has one row for each point in time, in
// order.
package rows

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A column is a field of a row, a whole number. One of a table that is only written may be a text.
type column[T any] struct {
	name  string
	value func(*T) *int64
	text  func(*T) string // nil: a whole number
}

// A layout describes a file of rows: the time in seconds with three decimals, then columns of whole
// numbers. An empty field is growth.Unknown.
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

// A Writer writes rows as CSV, each as soon as it comes, so that all rows survive if allocscope is
// killed.
type Writer[T any] struct {
	csv    *csv.Writer
	layout *layout[T]
}

func newRowWriter[T any](w io.Writer, l *layout[T]) (*Writer[T], error) {
	t := &Writer[T]{csv.NewWriter(w), l}
	return t, t.flush(l.header())
}

// Write writes rows. The error comes from the underlying writer, unwrapped. After the first error
// nothing more is written, so that no row follows half a row.
func (t *Writer[T]) Write(rows ...T) error {
	for i := range rows {
		if err := t.csv.Write(t.fields(&rows[i])); err != nil {
			return err
		}
	}
	t.csv.Flush()
	return t.csv.Error()
}

func (t *Writer[T]) fields(row *T) []string {
	ms := t.layout.elapsed(row).Round(time.Millisecond).Milliseconds()
	fields := []string{fmt.Sprintf("%d.%03d", ms/1000, ms%1000)}
	for _, c := range t.layout.columns {
		field := ""
		if c.text != nil {
			field = inert(c.text(row))
		} else if value := *c.value(row); value != growth.Unknown {
			field = strconv.FormatInt(value, 10)
		}
		fields = append(fields, field)
	}

	return fields
}

// inert puts an apostrophe before a text that a spreadsheet would take for a formula: names are the
// traced program's choice.
func inert(text string) string {
	if text != "" && strings.Contains("=+-@", text[:1]) {
		return "'" + text
	}
	return text
}

func (t *Writer[T]) flush(fields []string) error {
	if err := t.csv.Write(fields); err != nil {
		return err
	}
	t.csv.Flush()
	return t.csv.Error()
}

// readRows reads the rows that a Writer wrote, and returns those that keep accepts; nil accepts
// all. Times are in milliseconds, and empty fields are growth.Unknown.
//
// An error names the line. It is another header, another number of fields, a time before the time
// of the row above, or an incomplete last line. The rows before that line are returned with it.
func (l *layout[T]) readRows(r io.Reader, keep func(*T) bool) ([]T, error) {
	lines := bufio.NewReader(r)
	if err := l.readHeader(lines); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}

	var rows []T
	var above time.Duration
	for number := 2; ; number++ {
		row, err := l.readRow(lines)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}

		if err == nil && *l.elapsed(&row) < above {
			err = errors.New("time_s is before that of the line above")
		}

		if err != nil {
			return rows, fmt.Errorf("line %d: %w", number, err)
		}

		above = *l.elapsed(&row)

		if keep == nil || keep(&row) {
			rows = append(rows, row)
		}
	}
}

// readHeader reads the header. The error quotes another one.
func (l *layout[T]) readHeader(r *bufio.Reader) error {
	want := strings.Join(l.header(), ",")
	header, err := readLine(r)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("no header: the file is empty")
	case err != nil:
		return err
	case header == want:
		return nil
	}

	return fmt.Errorf("header is %q, not %q", header, want)
}

func (l *layout[T]) readRow(r *bufio.Reader) (row T, err error) {
	line, err := readLine(r)
	if err != nil {
		return row, err
	}

	if n := strings.Count(line, ","); n != len(l.columns) {
		return row, fmt.Errorf("%d fields, not %d", n+1, 1+len(l.columns))
	}

	field, rest, _ := strings.Cut(line, ",")
	if *l.elapsed(&row), err = parseSeconds(field); err != nil {
		return row, fmt.Errorf("time_s: %w", err)
	}

	for _, c := range l.columns {
		field, rest, _ = strings.Cut(rest, ",")
		if *c.value(&row), err = parseCounter(field); err != nil {
			return row, fmt.Errorf("%s: %w", c.name, err)
		}
	}

	return row, nil
}

// readLine reads a line without its newline. The error is io.EOF, unwrapped, at the end of the
// file.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == nil:
		return string(line[:len(line)-1]), nil
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("longer than %d bytes", len(line))
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", errors.New("cut short: no newline at its end")
	}

	return "", err
}

// parseSeconds accepts three decimals, "12.345", and nothing else.
func parseSeconds(field string) (time.Duration, error) {
	seconds, fraction, _ := strings.Cut(field, ".")
	whole, err := strconv.ParseUint(seconds, 10, 63)
	ms, err2 := strconv.ParseUint(fraction, 10, 63)
	if err != nil || err2 != nil || len(fraction) != 3 ||
		whole >= math.MaxInt64/uint64(time.Second) {
		return 0, fmt.Errorf("%q is not seconds with three decimals", field)
	}

	return time.Duration(whole)*time.Second + time.Duration(ms)*time.Millisecond, nil
}

func parseCounter(field string) (int64, error) {
	if field == "" {
		return growth.Unknown, nil
	}

	value, err := strconv.ParseUint(field, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", field)
	}

	return int64(value), nil
}

// IsColumn reports whether a file of this package has a column of this name.
func IsColumn(name string) bool {
	return slices.Contains(slices.Concat(timelineLayout.header(), processesLayout.header(),
		gpusLayout.header(), objectsLayout.header()), name)
}
