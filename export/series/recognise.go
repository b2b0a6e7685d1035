package series

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// recognise finds out how a file is laid out from its first lines.
func recognise(head [][]byte, o Options) (layout, error) {
	rows := slices.DeleteFunc(slices.Clone(head), func(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 })
	if slices.ContainsFunc(rows, isMprof) {
		return newMprof(o), nil
	}
	if t, err := headed(rows, o); t != nil || err != nil {
		return orNil(t), err
	}
	if t, err := headless(rows, o); t != nil || err != nil {
		return orNil(t), err
	}
	l, err := newLog(rows, o)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, errors.New("find samples: this is no table, and none of its first lines has a size (such as rss=9.4GB)")
	}
	return l, nil
}

// orNil keeps a nil table from becoming a layout that is not nil.
func orNil(t *table) layout {
	if t == nil {
		return nil
	}
	return t
}

// isMprof knows the lines of memory_profiler: "MEM 12.3 1700000000.1", in MiB.
func isMprof(line []byte) bool {
	cells := splitBlanks(nil, line)
	return len(cells) == 3 && string(cells[0]) == "MEM" && isNumber(cells[1]) && isNumber(cells[2])
}

func newMprof(o Options) *table {
	t := &table{
		delimiter: blanks, only: []byte("MEM "), columns: []string{"MEM", "memory", "time"}, x: 2, y: 1, pid: -1,
		axis: newAxis("time", Options{}), unit: sizeUnits["mib"],
	}
	if o.Every > 0 {
		t.axis, t.x = nil, -1
	}
	return t
}

// headed recognises a table whose first line, or a comment above it, names the columns; nil: it is none.
func headed(rows [][]byte, o Options) (*table, error) {
	first := slices.IndexFunc(rows, isNoComment)
	if first < 0 {
		return nil, nil
	}
	for _, line := range rows[:first] {
		if t, err := under(line, rows[first], o); t != nil || err != nil {
			return t, err
		}
	}
	rows = rows[first:]
	next := slices.IndexFunc(rows, func(row []byte) bool { return isNoComment(row) && !bytes.Equal(row, rows[0]) })
	if next < 0 {
		return nil, nil
	}
	return under(rows[0], rows[next], o)
}

func isNoComment(row []byte) bool { return row[0] != '#' }

// under makes the table that has a line as its header and a row below it; nil: they do not fit each other.
func under(line, row []byte, o Options) (*table, error) {
	header := bytes.TrimSpace(bytes.TrimLeft(line, "# "))
	for _, delimiter := range delimiters {
		t, err := namedBy(header, row, delimiter, o)
		if err != nil {
			return nil, err
		}
		if t != nil {
			t.header = bytes.TrimSpace(line)
			return t, nil
		}
	}
	return nil, nil
}

// namedBy makes the table if header and row fit each other; nil if not.
func namedBy(header, row []byte, delimiter byte, o Options) (*table, error) {
	if delimiter != blanks && bytes.IndexByte(header, delimiter) < 0 {
		return nil, nil
	}
	cells := split(nil, row, delimiter)
	columns := splitNames(header, delimiter, len(cells))
	if slices.ContainsFunc(columns, func(c string) bool { return isNumber([]byte(c)) }) {
		return nil, nil
	}
	if delimiter == blanks && isPS(columns) {
		return newPS(columns, o)
	}
	y, err := find(columns, o.Y, yNames)
	plain := !slices.ContainsFunc(cells, func(c []byte) bool { return !isNumber(c) && !isGap(c) })
	if len(cells) != len(columns) || !plain && (err != nil || y < 0) {
		return nil, nil
	}
	return newTable(delimiter, columns, o)
}

// psHeadings of ps, of which those with sizes are in KiB.
const psHeadings = " PID PPID USER UID RSS RSZ VSZ %MEM %CPU C ELAPSED TIME STIME START STARTED TT TTY STAT S NI PRI NLWP LWP CMD COMMAND "

func isPS(columns []string) bool {
	return slices.Contains(columns, "RSS") &&
		!slices.ContainsFunc(columns, func(c string) bool { return !strings.Contains(psHeadings, " "+c+" ") })
}

// newPS is the output of ps, called again and again. TIME is that of the CPU, and no axis.
func newPS(columns []string, o Options) (*table, error) {
	if o.Y == "" {
		o.Y = "RSS"
	}
	if o.Unit == "" {
		o.Unit = "KiB"
	}
	if o.X == "" && o.Every == 0 {
		if !slices.Contains(columns, "ELAPSED") {
			return nil, errors.New("find times: ps wrote none (call it with -o etimes,rss, or give the time between its calls with --every)")
		}
		o.X = "ELAPSED"
	}
	t, err := newTable(blanks, columns, o)
	if err != nil {
		return nil, err
	}
	t.loose = true
	if t.axis != nil && columns[t.x] == "ELAPSED" {
		t.axis.age = true
	}
	return t, nil
}

// headless recognises a table without names by its first row; nil: it is none.
func headless(rows [][]byte, o Options) (*table, error) {
	first := slices.IndexFunc(rows, isNoComment)
	if first < 0 {
		return nil, nil
	}
	for _, delimiter := range delimiters {
		cells := split(nil, rows[first], delimiter)
		if delimiter != blanks && len(cells) < 2 || slices.ContainsFunc(cells, func(c []byte) bool { return !isNumber(c) && !isGap(c) }) {
			continue
		}
		return numbered(delimiter, len(cells), o)
	}
	return nil, nil
}

// isNumber tells that a cell is a number, with a unit or without, or a date or a time of day.
func isNumber(cell []byte) bool {
	_, n := number(cell)
	if n == 0 {
		return false
	}
	_, size := unitAt(cell[n:], sizeUnits)
	_, duration := unitAt(cell[n:], timeUnits)
	return size || duration || len(bytes.Trim(cell, "0123456789:.,+-/TZ ")) == 0
}

func isGap(cell []byte) bool {
	_, err := gap(cell, "")
	return err == nil
}
