package series

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A format finds the two cells of a sample in a line, and parses them.
type format struct {
	// cells returns the size and the time of a line. ok is false if it has no sample.
	cells func(line string) (size, time string, ok bool, err error)

	size, time string  // how errors call them: `field "rss_mb"`
	unit       float64 // bytes, of sizes without a unit; 0: unknown
	axis       *axis   // nil: the file has no times
}

// formats are tried in this order. Each returns nil if the first lines of a file, without blank
// ones, are of another format.
var formats = []func(rows []string, o Options) (*format, error){
	newMprof, newHeaded, newHeadless, newLog,
}

// recognise finds out the format of a file from its first lines.
func recognise(head []string, o Options) (*format, error) {
	isBlank := func(line string) bool { return strings.TrimSpace(line) == "" }
	rows := slices.DeleteFunc(head, isBlank)

	for _, newFormat := range formats {
		if f, err := newFormat(rows, o); f != nil || err != nil {
			return f, err
		}
	}

	return nil, errors.New("find samples: this is no table, and none of its first lines has a " +
		"size (such as rss=9.4GB)")
}

// sample parses a line. ok is false if it has no sample. A size of NaN is a gap. The error names
// the field.
func (f *format) sample(line string) (x, y float64, ok bool, err error) {
	size, time, ok, err := f.cells(line)
	if err != nil || !ok {
		return 0, 0, false, err
	}

	if y, err = parseSize(size, f.unit); err != nil {
		return 0, 0, false, fmt.Errorf("%s: %w", f.size, err)
	}

	if f.axis != nil {
		if x, err = f.axis.parse(time); err != nil {
			return 0, 0, false, fmt.Errorf("%s: %w", f.time, err)
		}
	}

	return x, y, true, nil
}
