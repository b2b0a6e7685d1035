package series

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A textLog is a file of free text, some of whose lines name a size and a time: "Step 40: 9,432 MB", "[12:00:01] rss=9.4GB".
type textLog struct {
	size  string // the name of sizes; "": they have none, but a unit
	named bool   // the user chose it
	time  string // the name of times; "": none, see stamp
	stamp bool   // times are at the beginning of the lines
	unit  float64
	axis  *axis
}

func (l *textLog) times() *axis { return l.axis }

// otherMemory are words that a size of something else goes with.
var otherMemory = []string{"gpu", "cuda", "vram", "free", "available", "limit"}

// newLog chooses size and time by the first lines; nil: no line has a size. The error says that no line has a time.
func newLog(rows [][]byte, o Options) (*textLog, error) {
	l, found := &textLog{size: nameOf(o.Y).base, named: o.Y != ""}, false
	l.unit, _ = sizeUnit(o.Unit)
	best := len(yNames) + 1
	for _, row := range rows {
		for _, r := range readings(row) {
			if l.named {
				found = found || r.has(l.size)
			} else if base, rank := r.sizeName(); rank < best {
				l.size, best, found = base, rank, true
			}
		}
	}
	if !found {
		return nil, nil
	}
	return l, l.chooseTime(rows, o)
}

// chooseTime looks for the time in the lines that have the size.
func (l *textLog) chooseTime(rows [][]byte, o Options) error {
	if o.Every > 0 {
		return nil
	}
	best := len(xNames)
	for _, row := range rows {
		all := readings(row)
		if _, n := l.choose(all); n == 0 {
			continue
		}
		if o.X == "" && all[0].stamp {
			l.stamp, l.axis = true, newAxis("time", Options{})
			return nil
		}
		for _, r := range all {
			for word := range r.words() {
				if rank := slices.Index(xNames, word.base); o.X == "" && rank >= 0 && rank < best {
					l.time, best, l.axis = word.base, rank, newAxis(word.text, o)
				}
				if o.X != "" && word.base == nameOf(o.X).base {
					l.time, l.axis = word.base, newAxis(word.text, o)
				}
			}
		}
	}
	if l.axis == nil {
		return fmt.Errorf("find times: no line with a size has one (%s)", remedyX)
	}
	return nil
}

// row reads a line that has both size and time. All others hold no sample.
func (l *textLog) row(line []byte) (x, y float64, ok bool, err error) {
	all := readings(line)
	size, n := l.choose(all)
	time, timed := l.timeOf(all)
	switch {
	case n == 0 || !timed:
		return 0, 0, false, nil
	case n > 1:
		return 0, 0, false, errors.New("the line has several sizes (choose one by its name with --y)")
	}
	if l.size == "vmrss" { // the kernel's kB are KiB
		_, end := number(size.cell)
		size.cell = size.cell[:end]
	}
	if y, err = parseSize(size.cell, l.unitOf(size)); err != nil {
		return 0, 0, false, fmt.Errorf("size %s: %w", quote([]byte(l.size)), err)
	}
	if l.axis == nil {
		return 0, y, true, nil
	}
	if x, err = l.axis.parse(time.cell); err != nil {
		return 0, 0, false, fmt.Errorf("time %s: %w", quote([]byte(l.time)), err)
	}
	return x, y, !math.IsNaN(y), nil
}

// choose gives the size of a line. Several sizes of one name are the same said twice, and the first counts; n says how many
// there are without a name.
func (l *textLog) choose(all []reading) (size reading, n int) {
	for _, r := range all {
		if l.size != "" {
			if r.has(l.size) && (l.named || !r.other()) {
				return r, 1
			}
		} else if _, rank := r.sizeName(); rank == len(yNames) {
			size = r
			n++
		}
	}
	return size, n
}

func (l *textLog) timeOf(all []reading) (reading, bool) {
	if l.axis == nil {
		return reading{}, true
	}
	i := slices.IndexFunc(all, func(r reading) bool { return l.stamp && r.stamp || !l.stamp && r.has(l.time) })
	if i < 0 {
		return reading{}, false
	}
	return all[i], true
}

// unitOf is the unit that a name such as rss_mb tells, unless the user does.
func (l *textLog) unitOf(r reading) float64 {
	if l.unit != 0 {
		return l.unit
	}
	for word := range r.words() {
		if word.base == l.size {
			return word.sizeOf()
		}
	}
	return 0
}

// A reading is a number in a line of text.
type reading struct {
	label []byte // the text before it
	cell  []byte // the number with its unit; of a stamp the whole time
	stamp bool   // a time at the beginning of the line
}

// sizeName is the most usual name of a size in the label and its rank among yNames; their number for a size without a name,
// and more for what is no size.
func (r reading) sizeName() (base string, rank int) {
	rank = len(yNames) + 1
	if r.stamp || r.other() {
		return "", rank
	}
	if _, n := number(r.cell); n < len(r.cell) && isSize(r.cell) {
		rank = len(yNames)
	}
	for word := range r.words() {
		if i := slices.Index(yNames, word.base); i >= 0 && i < rank && (isSize(r.cell) || word.size != 0) {
			base, rank = word.base, i
		}
	}
	return base, rank
}

func (r reading) has(base string) bool {
	for word := range r.words() {
		if word.base == base {
			return true
		}
	}
	return false
}

// other tells that the size is of some other memory than the process's.
func (r reading) other() bool {
	for word := range r.words() {
		if slices.ContainsFunc(strings.Split(word.base, "_"), func(w string) bool { return slices.Contains(otherMemory, w) }) {
			return true
		}
	}
	return false
}

func isSize(cell []byte) bool {
	_, n := number(cell)
	_, ok := unitAt(cell[n:], sizeUnits)
	return n > 0 && ok && bytes.IndexByte(cell, '-') < 0
}
