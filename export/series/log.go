package series

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// A textLog is a file of free text. Some of its lines have a size and a time:
// "Step 40: 9,432 MB", "[12:00:01] rss=9.4GB".
type textLog struct {
	size    string // the name of sizes; empty: they have none, but a unit
	isNamed bool   // the user chose the name
	time    string // the name of times; empty: there are none, or isStamp
	isStamp bool   // lines begin with their times
	unit    float64
	axis    *axis
}

// A reading is a number in a line of text.
type reading struct {
	names   []name // the words before it
	cell    string // the number with its unit; of a stamp the whole time
	isStamp bool   // a time at the beginning of the line
}

// otherMemory are words that belong to the sizes of something else than the process.
var otherMemory = strings.Fields("gpu cuda vram free available limit")

// newLog chooses the size and the time by the first lines.
func newLog(rows []string, o Options) (layout, error) {
	l := &textLog{
		size: nameOf(o.Y).base, isNamed: o.Y != "", unit: sizeUnits[strings.ToLower(o.Unit)],
	}
	isFound, best := false, len(yNames)+1
	for _, row := range rows {
		for _, r := range readings(row) {
			if l.isNamed {
				isFound = isFound || r.has(l.size)
			} else if base, rank := r.sizeName(); rank < best {
				l.size, best, isFound = base, rank, true
			}
		}
	}

	if !isFound {
		return nil, errors.New("find samples: this is no table, and none of its first lines has a size " +
			"(such as rss=9.4GB)")
	}

	if o.Every == 0 {
		l.chooseTime(rows, o)
		if l.axis == nil {
			return nil, fmt.Errorf("find times: no line with a size has one (%s)", remedyX)
		}
	}

	return l, nil
}

// chooseTime searches the lines that have the size for the most usual name of times. A time at the
// beginning of such a line is preferred.
func (l *textLog) chooseTime(rows []string, o Options) {
	want, best := nameOf(o.X).base, len(xNames)
	for _, row := range rows {
		all := readings(row)
		if _, n := l.choose(all); n == 0 {
			continue
		}

		if o.X == "" && all[0].isStamp {
			l.isStamp, l.axis = true, newAxis("time", Options{})
			return
		}

		for _, r := range all {
			for _, n := range r.names {
				rank := slices.Index(xNames, n.base)
				isBest := o.X == "" && rank >= 0 && rank < best
				if isBest || o.X != "" && n.base == want {
					l.time, best, l.axis = n.base, rank, newAxis(n.text, o)
				}
			}
		}
	}
}

func (l *textLog) times() *axis { return l.axis }

// row parses a line that has both a size and a time. All others have no sample.
func (l *textLog) row(line string) (x, y float64, ok bool, err error) {
	all := readings(line)
	size, n := l.choose(all)
	time, isTimed := l.timeOf(all)
	switch {
	case n == 0 || !isTimed:
		return 0, 0, false, nil
	case n > 1:
		return 0, 0, false, errors.New("the line has several sizes (choose one by its name with --y)")
	}

	if l.size == "vmrss" { // the kernel's kB are KiB
		_, end := number(size.cell)
		size.cell = size.cell[:end]
	}

	if y, err = parseSize(size.cell, l.unitOf(size)); err != nil {
		return 0, 0, false, fmt.Errorf("size %s: %w", quote(l.size), err)
	}

	if l.axis == nil {
		return 0, y, true, nil
	}

	if x, err = l.axis.parse(time.cell); err != nil {
		return 0, 0, false, fmt.Errorf("time %s: %w", quote(l.time), err)
	}

	return x, y, !math.IsNaN(y), nil
}

// choose returns the size of a line. Of several sizes with one name the first counts. n is the
// number of sizes without a name.
func (l *textLog) choose(all []reading) (size reading, n int) {
	for _, r := range all {
		if l.size != "" {
			if r.has(l.size) && (l.isNamed || !r.isOther()) {
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

	isTime := func(r reading) bool { return l.isStamp && r.isStamp || !l.isStamp && r.has(l.time) }

	i := slices.IndexFunc(all, isTime)
	if i < 0 {
		return reading{}, false
	}

	return all[i], true
}

// unitOf is the unit of a size without one: that of the user, or that in a name such as rss_mb.
func (l *textLog) unitOf(r reading) float64 {
	if l.unit != 0 {
		return l.unit
	}

	for _, n := range r.names {
		if n.base == l.size {
			return n.sizeUnit()
		}
	}

	return 0
}

// sizeName is the most usual name of a size before the number, and its rank among yNames. The rank
// is their number for a size without a name, and larger for anything else.
func (r reading) sizeName() (base string, rank int) {
	rank = len(yNames) + 1
	if r.isStamp || r.isOther() {
		return "", rank
	}

	_, n := number(r.cell)
	_, hasUnit := unitOf(r.cell[n:], sizeUnits)

	isSize := n > 0 && hasUnit && !strings.Contains(r.cell, "-")
	if isSize && n < len(r.cell) {
		rank = len(yNames)
	}

	for _, name := range r.names {
		i := slices.Index(yNames, name.base)
		if i >= 0 && i < rank && (isSize || name.size != 0) {
			base, rank = name.base, i
		}
	}

	return base, rank
}

func (r reading) has(base string) bool {
	return slices.ContainsFunc(r.names, func(n name) bool { return n.base == base })
}

// isOther reports whether the size is of other memory than that of the process.
func (r reading) isOther() bool {
	isOther := func(word string) bool { return slices.Contains(otherMemory, word) }
	return slices.ContainsFunc(r.names, func(n name) bool {
		return slices.ContainsFunc(strings.Split(n.base, "_"), isOther)
	})
}

var (
	stampPattern = regexp.MustCompile(`^(?:[0-9].{3}[-/].{2}[-/].{2}.)?[0-9].:.{2}:.{2}[0-9.,]*(?:Z|[+-].{2}:.{2})?`)
	wordPattern  = regexp.MustCompile(`[0-9A-Za-z_]+`)
	unitPattern  = regexp.MustCompile(`^ ?[0-9A-Za-z_]+`)
)

const maxReadings = 64 // in a line

// readings finds the numbers in a line of text, and the time that it begins with.
func readings(line string) (all []reading) {
	text := strings.TrimLeft(line, " \t[(")
	if n := stampLength(text); n > 0 {
		all, text = append(all, reading{cell: text[:n], isStamp: true}), text[n:]
	}

	label := 0
	for i := 0; i < len(text) && len(all) < maxReadings; {
		if i > 0 && isWord(text[i-1]) || !isDigit(text[i]) {
			if strings.IndexByte(",;|{}[]", text[i]) >= 0 {
				label = i + 1
			}
			i++
			continue
		}

		start, end := i, i+cellLength(text[i:])
		if i > 0 && text[i-1] == '-' && (i == 1 || !isWord(text[i-2])) {
			start--
		}

		r := reading{cell: text[start:end]}
		for _, word := range wordPattern.FindAllString(text[label:start], -1) {
			r.names = append(r.names, nameOf(word))
		}

		all = append(all, r)
		i, label = end, end
	}

	return all
}

func isWord(c byte) bool { return c == '_' || isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }

// stampLength is the length of a time at the beginning of text: a date with its time of day, a time
// of day, or seconds since 1970; 0 if there is none. It accepts a damaged time, which is then an
// error and not a line without a time.
func stampLength(text string) int {
	value, n := number(text)
	if value >= minEpoch && value < 1e11 && (n == len(text) || !isWord(text[n])) {
		return n
	}
	stamp := stampPattern.FindString(text)
	return len(strings.TrimRight(stamp, ".,"))
}

// cellLength is the length of a number with the unit behind it, if it has one.
func cellLength(text string) int {
	_, n := number(text)
	word := unitPattern.FindString(text[n:])

	_, isSize := unitOf(word, sizeUnits)
	_, isTime := unitOf(word, timeUnits)
	if word != "" && (isSize || isTime) {
		return n + len(word)
	}

	return n
}
