package series

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A textLog is a file of free text. Some of its lines have a size and a time:
// "Step 40: 9,432 MB", "[12:00:01] rss=9.4GB".
type textLog struct {
	size     string // the name of sizes; empty: they have none, but a unit
	isWanted bool   // the user chose the name
	time     string // the name of times; empty: there are none
}

// A reading is a number in a line of text.
type reading struct {
	label   string // the words before it
	cell    string // the number with its unit
	isSize  bool   // it may be one: it is not negative, and has no unit of time
	hasUnit bool   // of size
}

var (
	// stampPattern matches a date with its time of day, a time of day, or seconds since 1970.
	stampPattern = regexp.MustCompile(`^[ \t\[(]*(?:(` +
		`(?:[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}[ T])?` +
		`[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?` +
		`|[0-9]{10}(?:\.[0-9]+)?)(?:[^\w.]|$))`)

	// readingPattern matches words, a number behind them, and its unit of size or time.
	readingPattern = regexp.MustCompile(`(?i)` +
		`((?:[a-z_]\w*|[^\w,;|{}\[\]])*?)` +
		`((?:\B-)?\b[0-9]+(?:[.,][0-9]+)*(?:e[+-]?[0-9]+)?` +
		`(?: ?([kmgt]i?b?|b|bytes?)\b` +
		`| ?([num]?s|m?sec|secs|seconds?|mins?|minutes?|h|hours?)\b)?)`)

	// otherMemory matches words about memory outside the process.
	otherMemory = regexp.MustCompile(`(?i)(?:\b|_)(?:gpu|cuda|vram|free|available|limit)(?:\b|_)`)
)

const maxReadings = 64 // in a line

// readingsOf finds the numbers in a line. A time at its beginning is the timestamp.
func readingsOf(line string) (all []reading) {
	if m := stampPattern.FindStringSubmatch(line); m != nil {
		all = append(all, reading{label: "timestamp", cell: m[1]})
		line = line[len(m[0]):]
	}

	for _, m := range readingPattern.FindAllStringSubmatch(line, maxReadings) {
		r := reading{label: m[1], cell: m[2], hasUnit: m[3] != ""}
		r.isSize = m[4] == "" && m[2][0] != '-'
		all = append(all, r)
	}

	return all
}

// words returns the words of the label. They may contain "_".
func (r reading) words() []string {
	isOther := func(c rune) bool { return c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }
	return strings.FieldsFunc(r.label, isOther)
}

func (r reading) has(want string) bool {
	isWanted := func(word string) bool { return strings.EqualFold(word, want) }
	return slices.ContainsFunc(r.words(), isWanted)
}

// newLog chooses the names of sizes and times by the first lines.
func newLog(rows []string, o Options) (*format, error) {
	l := &textLog{isWanted: o.Y != ""}
	f := &format{cells: l.cells, unit: sizeUnits[strings.ToLower(o.Unit)]}

	hasUnit := false
	var names []name
	for _, row := range rows {
		for _, r := range readingsOf(row) {
			if r.isSize && (l.isWanted || !r.isOther()) {
				names = append(names, namesOf(r.words())...)
				hasUnit = hasUnit || r.hasUnit
			}
		}
	}

	if y := find(names, o.Y, yNames); y >= 0 {
		l.size = names[y].text
		f.unit = cmp.Or(f.unit, names[y].size)
	} else if l.isWanted || !hasUnit {
		return nil, nil
	}

	f.size = "size " + quote(l.size)
	if o.Every > 0 {
		return f, nil
	}

	names = nil
	for _, row := range rows {
		all := readingsOf(row)
		if !slices.ContainsFunc(all, l.isSample) {
			continue
		}
		for _, r := range all {
			names = append(names, namesOf(r.words())...)
		}
	}

	x := find(names, o.X, slices.Concat([]string{"timestamp"}, xNames))
	if x < 0 {
		return nil, fmt.Errorf("find times: no line with a size has one (%s)", remedyX)
	}

	l.time = names[x].text
	f.time, f.axis = "time "+quote(l.time), newAxis(names[x], o)
	return f, nil
}

// cells returns the cells of a line that has both a size and a time. All others have no sample. If
// several sizes have one name, the first counts.
func (l *textLog) cells(line string) (size, time string, ok bool, err error) {
	all := readingsOf(line)
	y := slices.IndexFunc(all, l.isSample)
	x := slices.IndexFunc(all, func(r reading) bool { return r.has(l.time) })
	if y < 0 || x < 0 && l.time != "" {
		return "", "", false, nil
	}

	if l.size == "" && slices.ContainsFunc(all[y+1:], l.isSample) {
		return "", "", false,
			errors.New("the line has several sizes (choose one by its name with --y)")
	}

	if x >= 0 {
		time = all[x].cell
	}

	size = all[y].cell
	if strings.EqualFold(l.size, "vmrss") {
		size = strings.Replace(size, "kB", "KiB", 1) // the kernel's kB are KiB
	}

	return size, time, true, nil
}

// isSample reports whether a reading is the size of a sample.
func (l *textLog) isSample(r reading) bool {
	if l.size == "" {
		return r.hasUnit && r.isSize && !r.isOther()
	}
	return r.has(l.size) && (l.isWanted || !r.isOther())
}

func (r reading) isOther() bool { return otherMemory.MatchString(r.label) }
