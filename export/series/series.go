// Package series reads a size over time from tables, the logs of samplers, and the logs of training
// runs.
//
// The first lines decide on the format of the file. A format finds the two cells of a sample in a
// line, and parses them.
//
// The text may come from anyone. Lines, samples and numbers are bounded, and errors escape their
// quotes. Nothing is guessed where two readings are plausible: the error then names the option that
// decides.
package series

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	maxSamples   = 1 << 26 // 1 GiB of numbers
	maxLineBytes = 64 << 10
)

// Options supply facts that a file lacks. The zero value leaves everything to the file.
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

// A File is a series with the facts that its file states about it.
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

	format, err := recognise(head, o)
	if err != nil {
		return nil, err
	}

	f := new(File)
	if err := f.fill(lines, format, o.Every); err != nil {
		return nil, err
	}

	f.finish(format.axis)
	return f, nil
}

func (o Options) check() error {
	if _, ok := unitOf(o.Unit, sizeUnits); !ok {
		return fmt.Errorf("read unit: %.40q is not a unit of size (write bytes, KiB, MB, MiB, GB "+
			"or GiB)", o.Unit)
	}

	if _, ok := unitOf(o.XUnit, timeUnits); !ok {
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
func (f *File) fill(lines *bufio.Reader, format *format, every float64) error {
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		isEnd := errors.Is(err, io.EOF)
		switch {
		case isEnd && len(line) == 0 && len(f.X) == 0:
			return fmt.Errorf("find samples: none in %d lines", number-1)
		case isEnd && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("line %d: longer than %d bytes", number, maxLineBytes)
		case err != nil && !isEnd:
			return fmt.Errorf("line %d: %w", number, err)
		}

		x, y, ok, err := format.sample(strings.TrimRight(string(line), "\r\n"))
		if every > 0 {
			x = float64(len(f.X)+f.Gaps) * every
		}

		switch {
		case err != nil && isEnd && len(f.X) > 0:
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", number, err)
		case !ok:
		case math.IsNaN(y):
			f.Gaps++
		case len(f.X) == maxSamples:
			return fmt.Errorf("line %d: more than %d samples (thin the file out)", number,
				maxSamples)
		default:
			f.X, f.Y = append(f.X, x), append(f.Y, y)
		}
	}
}

// finish sorts the samples, and lets dates count from the first one.
func (f *File) finish(times *axis) {
	if samples := byTime(f.Series); !sort.IsSorted(samples) {
		sort.Stable(samples)
	}

	if times == nil {
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

// byTime sorts a series in place.
type byTime verdict.Series

func (s byTime) Len() int           { return len(s.X) }
func (s byTime) Less(i, j int) bool { return s.X[i] < s.X[j] }

func (s byTime) Swap(i, j int) {
	s.X[i], s.X[j] = s.X[j], s.X[i]
	s.Y[i], s.Y[j] = s.Y[j], s.Y[i]
}
