// Package series reads a size over time from whatever wrote it: tables, the logs of samplers, the log of a training.
//
// What is read is text that anyone may have written: lines, samples and numbers are bounded, and what an error quotes is
// escaped. Nothing is guessed where two readings are plausible: the error then says how to choose.
package series

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/allocscope/allocscope/growth"
)

const maxSamples = 1 << 26 // 1 GiB of numbers

// Options say what a file does not tell. The zero value leaves everything to the file.
type Options struct {
	// X and Y choose the columns of time and of size, by name or by number from 1; "": by their usual names.
	X, Y string
	// Unit of the sizes that carry none: "bytes", "KiB", "MB", …; "": as the name of the column says.
	Unit string
	// XUnit of times that carry none: "s", "ms", "min", "h", or "steps"; "": as the name of the column says.
	XUnit string
	// Every is the time between two samples, in seconds, and replaces the times of the file; 0: the file has times.
	Every float64
}

// A File is a series and what its file told about it.
type File struct {
	// Series in bytes; X is sorted, and is in seconds or steps. Dates and times of day count from the first sample, other
	// times are as in the file. Samples at the same X are all kept, in the order of the file: clocks of one second have many.
	growth.Series
	// Steps tells that X counts training steps, not seconds.
	Steps bool
	// Age of the process at the first sample, in seconds, where the file tells it; 0: unknown.
	Age float64
	// Gaps are the rows without a size, which are left out.
	Gaps int
}

// A layout understands the lines of a file.
type layout interface {
	// row reads a line; false: it holds no sample. A size of NaN is a gap. The error names the field.
	row(line []byte) (x, y float64, ok bool, err error)
	// times is how X was read; nil where the file has none.
	times() *axis
}

// Read reads a series. Errors name the line and the field, and what to do about a unit or a column that cannot be told; no
// sample at all is an error too. Memory is bounded: 16 bytes a sample, of which there may be 64 Mi, and 64 KiB a line.
func Read(r io.Reader, o Options) (*File, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	lines := newLines(r)
	head, err := lines.head()
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
	if len(f.X) == 0 {
		return nil, fmt.Errorf("find samples: none in %d lines", lines.number)
	}
	f.finish(form.times(), o.Every)
	return f, nil
}

func (o Options) check() error {
	if _, ok := sizeUnit(o.Unit); o.Unit != "" && !ok {
		return fmt.Errorf("read unit: %.40q is not a unit of size (write bytes, KiB, MB, MiB, GB or GiB)", o.Unit)
	}
	if _, ok := timeUnits[o.XUnit]; o.XUnit != "" && !ok {
		return fmt.Errorf("read unit: %.40q is not a unit of time (write s, ms, min, h or steps)", o.XUnit)
	}
	if !(o.Every >= 0 && o.Every <= maxX) {
		return fmt.Errorf("read time between samples: %g s is out of range", o.Every)
	}
	return nil
}

// fill reads all rows. A last line without its newline may be half a row, and is left out where it cannot be read.
func (f *File) fill(lines *lines, form layout, every float64) error {
	for rows := 0; ; {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		x, y, ok, err := form.row(line)
		switch {
		case err != nil && lines.cut && len(f.X) > 0:
			return nil
		case err != nil:
			return fmt.Errorf("line %d: %w", lines.number, err)
		case !ok:
			continue
		}
		if every > 0 {
			x = float64(rows) * every
		}
		rows++
		if math.IsNaN(y) {
			f.Gaps++
			continue
		}
		if len(f.X) == maxSamples {
			return fmt.Errorf("line %d: more than %d samples (thin the file out)", lines.number, maxSamples)
		}
		f.X, f.Y = append(f.X, x), append(f.Y, y)
	}
}

// finish sorts the samples and gives dates a beginning.
func (f *File) finish(times *axis, every float64) {
	if !slices.IsSorted(f.X) {
		f.sort()
	}
	if every > 0 || times == nil {
		return
	}
	f.Steps = times.steps
	if times.age {
		f.Age = f.X[0]
	}
	if times.absolute {
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
