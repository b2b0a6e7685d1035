// Package series reads a size over time from whatever wrote it: tables, the logs of samplers, and
// the logs of training runs.
//
// The text may come from anyone. Lines, samples and numbers are bounded, and errors escape what
// they quote. Nothing is guessed where two readings are plausible: the error then names the option
// that decides.
package series

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	maxSamples   = 1 << 26 // 1 GiB of numbers
	maxLineBytes = 64 << 10
)

// Options supply what a file does not say. The zero value leaves everything to the file.
type Options struct {
	// X and Y are the columns of time and size, by name or by number from 1; empty: by their usual
	// names.
	X, Y string
	// Unit of sizes without one: "bytes", "KiB", "MB", …; empty: that in the name of the column.
	Unit string
	// XUnit of times without one: "s", "ms", "min", "h", or "steps"; empty: that in the name of
	// the column.
	XUnit string
	// Every is the time between two samples, in seconds, and replaces the times of the file; 0:
	// the file has times.
	Every float64
}

// A File is a series and what its file states about it.
type File struct {
	// Series in bytes, with X sorted, in seconds or steps. Dates and times of day count from the
	// first sample; other times are as in the file. Samples at the same X are all kept, in the
	// order of the file: clocks of one second have many.
	verdict.Series
	// Steps: X counts training steps, not seconds.
	Steps bool
	// Age of the process at the first sample, in seconds; 0: unknown.
	Age float64
	// Gaps is the number of rows without a size, which are left out.
	Gaps int
}

// A layout parses the lines of a file.
type layout interface {
	// row parses a line. ok is false if it has no sample. A size of NaN is a gap. The error names
	// the field.
	row(line string) (x, y float64, ok bool, err error)
	// times is how X was parsed; nil if the file has no times.
	times() *axis
}

// Read reads a series. Errors name the line and the field, and the option that chooses a unit or
// a column. A file without samples is an error. Memory is bounded by 16 bytes for each of up to
// 64 Mi samples, and 64 KiB for a line.
func Read(r io.Reader, o Options) (*File, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	lines := bufio.NewReaderSize(r, maxLineBytes)

	head, err := peekLines(lines)
	if err != nil {
		return nil, err
	}

	form, err := recognise(head, o)
	if err != nil {
		return nil, err
	}

	f := new(File)
	if err := f.fill(lines, form, o.Every); err != nil {
		return nil, err
	}

	f.finish(form.times(), o.Every)
	return f, nil
}

func (o Options) check() error {
	if _, ok := sizeUnits[strings.ToLower(o.Unit)]; o.Unit != "" && !ok {
		return fmt.Errorf("read unit: %.40q is not a unit of size (write bytes, KiB, MB, MiB, GB "+
			"or GiB)",
			o.Unit)
	}

	if _, ok := timeUnits[o.XUnit]; o.XUnit != "" && !ok {
		return fmt.Errorf("read unit: %.40q is not a unit of time (write s, ms, min, h or steps)",
			o.XUnit)
	}

	if !(o.Every >= 0 && o.Every <= maxX) {
		return fmt.Errorf("read time between samples: %g s is out of range", o.Every)
	}

	return nil
}

// peekLines returns the first lines, without an incomplete one, and skips a byte order mark.
func peekLines(r *bufio.Reader) ([]string, error) {
	head, err := r.Peek(maxLineBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}

	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(head, mark) {
		head = head[len(mark):]
		_, _ = r.Discard(len(mark))
	}

	switch {
	case bytes.IndexByte(head, 0) >= 0:
		return nil, errors.New("read lines: the file is binary, not text")
	case len(bytes.TrimSpace(head)) == 0:
		return nil, errors.New("read lines: the file is empty")
	}

	lines := strings.Split(strings.ReplaceAll(string(head), "\r\n", "\n"), "\n")
	if err == nil && len(lines) > 1 {
		lines = lines[:len(lines)-1]
	}

	return lines, nil
}

// fill reads all rows. A last line without a newline may be half a row: it is left out if it cannot
// be parsed.
func (f *File) fill(lines *bufio.Reader, form layout, every float64) error {
	rows := 0
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		isCut := errors.Is(err, io.EOF) && len(line) > 0
		switch {
		case isCut:
		case errors.Is(err, io.EOF) && len(f.X) == 0:
			return fmt.Errorf("find samples: none in %d lines", number-1)
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("line %d: longer than %d bytes", number, maxLineBytes)
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		}

		x, y, ok, err := form.row(strings.TrimRight(string(line), "\r\n"))
		switch {
		case err != nil && isCut && len(f.X) > 0:
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		case !ok:
			continue
		}

		if every > 0 {
			x = float64(rows) * every
		}

		rows++

		switch {
		case math.IsNaN(y):
			f.Gaps++
			continue
		case len(f.X) == maxSamples:
			return fmt.Errorf("line %d: more than %d samples (thin the file out)", number,
				maxSamples)
		}

		f.X, f.Y = append(f.X, x), append(f.Y, y)
	}
}

// finish sorts the samples, and lets dates count from the first one.
func (f *File) finish(times *axis, every float64) {
	if !slices.IsSorted(f.X) {
		f.sort()
	}

	if every > 0 || times == nil {
		return
	}

	f.Steps = times.steps

	if times.isAge {
		f.Age = f.X[0]
	}

	if times.isDate {
		for i, first := 0, f.X[0]; i < len(f.X); i++ {
			f.X[i] -= first
		}
	}
}

func (f *File) sort() {
	type sample struct{ x, y float64 }
	samples := make([]sample, len(f.X))
	for i := range samples {
		samples[i] = sample{f.X[i], f.Y[i]}
	}

	slices.SortStableFunc(samples, func(a, b sample) int { return cmp.Compare(a.x, b.x) })

	for i, s := range samples {
		f.X[i], f.Y[i] = s.x, s.y
	}
}
