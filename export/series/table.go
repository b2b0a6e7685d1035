package series

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// blanks is the delimiter of columns between any number of spaces and tabs.
const blanks = ' '

var delimiters = []rune{'\t', ';', ',', blanks}

const remedyX = "choose one with --x, or give the time between rows with --every"

// A table is a file with one sample per line, in columns.
type table struct {
	delimiter rune
	prefix    string   // of lines with samples
	header    string   // which may be repeated; empty: there is none
	columns   []string // names, or numbers from 1
	x, y      int      // columns, from 0; -1: there is none
	same      []int    // columns that must not change: the PID, or the GPU and its instance
	first     []string // the values of these in the first row
	loose     bool     // lines may have more cells, and fewer where these are not needed
	axis      *axis
	unit      float64 // bytes, of sizes without a unit; 0: unknown
}

// recognise finds out the layout of a file from its first lines.
func recognise(head []string, o Options) (layout, error) {
	isBlank := func(line string) bool { return strings.TrimSpace(line) == "" }
	rows := slices.DeleteFunc(head, isBlank)
	if slices.ContainsFunc(rows, isMprof) {
		return newMprof(o), nil
	}

	if t, err := newHeaded(rows, o); t != nil || err != nil {
		return t, err
	}

	if t, err := newHeadless(rows, o); t != nil || err != nil {
		return t, err
	}

	return newLog(rows, o)
}

// isMprof recognises memory_profiler's lines with sizes in MiB: "MEM 12.3 1700000000.1".
func isMprof(line string) bool {
	cells := strings.Fields(line)
	return len(cells) == 3 && cells[0] == "MEM" && isValue(cells[1]) && isValue(cells[2])
}

func newMprof(o Options) *table {
	t := &table{
		delimiter: blanks, prefix: "MEM ", columns: []string{"MEM", "memory", "time"}, x: 2, y: 1,
		axis: newAxis("time", Options{}), unit: sizeUnits["mib"],
	}
	if o.Every > 0 {
		t.axis, t.x = nil, -1
	}

	return t
}

func isComment(row string) bool { return row[0] == '#' }

func isData(row string) bool { return !isComment(row) }

// newHeaded recognises a table whose columns are named by its first line, or by a comment above
// that; nil if there is none.
func newHeaded(rows []string, o Options) (*table, error) {
	first := slices.IndexFunc(rows, isData)
	if first < 0 {
		return nil, nil
	}

	for _, comment := range rows[:first] {
		if t, err := newUnder(comment, rows[first], o); t != nil || err != nil {
			return t, err
		}
	}

	isNext := func(row string) bool { return isData(row) && row != rows[first] }

	next := slices.IndexFunc(rows[first:], isNext)
	if next < 0 {
		return nil, nil
	}

	return newUnder(rows[first], rows[first+next], o)
}

// newUnder makes the table that has a line as its header and a row below it; nil if they do not
// match.
func newUnder(line, row string, o Options) (*table, error) {
	header := strings.TrimSpace(strings.TrimLeft(line, "# "))
	for _, delimiter := range delimiters {
		if delimiter != blanks && !strings.ContainsRune(header, delimiter) {
			continue
		}

		cells := split(row, delimiter)
		columns := splitHeader(header, delimiter, len(cells))

		var t *table
		var err error
		if delimiter == blanks && isPS(columns) {
			t, err = newPS(columns, o)
		} else if isHeader(columns, cells, o) {
			t, err = newTable(delimiter, columns, o)
		}

		if err != nil {
			return nil, err
		}

		if t != nil {
			t.header = strings.TrimSpace(line)
			return t, nil
		}
	}

	return nil, nil
}

// isHeader reports whether names are those of the cells below. Rows with free text need a usual or
// wanted name of sizes.
func isHeader(columns, cells []string, o Options) bool {
	if len(columns) != len(cells) || slices.ContainsFunc(columns, isValue) {
		return false
	}
	y, err := findColumn(columns, o.Y, yNames)
	return !slices.ContainsFunc(cells, isText) || err == nil && y >= 0
}

// psHeadings are those of ps(1). The sizes are in KiB.
const psHeadings = " PID PPID USER UID RSS RSZ VSZ %MEM %CPU C ELAPSED TIME STIME START STARTED " +
	"TT TTY STAT S NI PRI NLWP LWP CMD COMMAND "

func isPS(columns []string) bool {
	isOther := func(c string) bool { return !strings.Contains(psHeadings, " "+c+" ") }
	return slices.Contains(columns, "RSS") && !slices.ContainsFunc(columns, isOther)
}

// newPS is the output of ps, called again and again. TIME is CPU time, and no axis.
func newPS(columns []string, o Options) (*table, error) {
	if o.Y == "" {
		o.Y = "RSS"
	}

	if o.Unit == "" {
		o.Unit = "KiB"
	}

	if o.X == "" && o.Every == 0 {
		if !slices.Contains(columns, "ELAPSED") {
			return nil,
				errors.New("find times: ps wrote none (call it with -o etimes,rss, or give the " +
					"time between its calls with --every)")
		}
		o.X = "ELAPSED"
	}

	t, err := newTable(blanks, columns, o)
	if err != nil {
		return nil, err
	}

	t.loose = true

	if t.axis != nil && columns[t.x] == "ELAPSED" {
		t.axis.isAge = true
	}

	return t, nil
}

// newHeadless recognises a table without names by its first row; nil if it is none. The columns
// are the sizes, or times and sizes, unless the user names others.
func newHeadless(rows []string, o Options) (*table, error) {
	first := slices.IndexFunc(rows, isData)
	if first < 0 {
		return nil, nil
	}

	for _, delimiter := range delimiters {
		cells := split(rows[first], delimiter)
		if delimiter != blanks && len(cells) < 2 || slices.ContainsFunc(cells, isText) {
			continue
		}

		columns := make([]string, len(cells))
		for i := range columns {
			columns[i] = strconv.Itoa(i + 1)
		}

		if o.Y == "" && len(columns) > 2 {
			return nil,
				errors.New("find sizes: the columns have no names (choose one by its number with " +
					"--y, and one with --x)")
		}

		if o.Y == "" {
			o.Y = strconv.Itoa(len(columns))
		}

		if o.X == "" && len(columns) == 2 && o.Every == 0 && o.Y == "2" {
			o.X = "1"
		}

		return newTable(delimiter, columns, o)
	}

	return nil, nil
}

// newTable finds the columns. The error names those that it cannot find.
func newTable(delimiter rune, columns []string, o Options) (t *table, err error) {
	t = &table{
		delimiter: delimiter, columns: columns, x: -1, unit: sizeUnits[strings.ToLower(o.Unit)],
	}
	if t.y, err = findColumn(columns, o.Y, yNames); err != nil {
		return nil, err
	}

	if t.y < 0 {
		return nil,
			fmt.Errorf("find sizes: none of the columns %s has a usual name (choose one with --y)",
				columnList(columns))
	}

	if o.Unit == "" {
		t.unit = nameOf(columns[t.y]).sizeUnit()
	}

	if pid, _ := findColumn(columns, "", []string{"pid"}); pid >= 0 {
		t.same = append(t.same, pid)
	}

	if gpu, instance := slices.Index(columns, "gpu"), slices.Index(columns, "instance"); gpu >= 0 &&
		instance >= 0 {
		t.same = append(t.same, gpu, instance) // gpus.csv of a trace
	}

	if o.Every > 0 {
		return t, nil
	}

	if t.x, err = findColumn(columns, o.X, xNames); err != nil {
		return nil, err
	}

	if t.x < 0 && len(columns) == 2 && mentionsX(columns[1-t.y]) {
		t.x = 1 - t.y
	}

	switch {
	case t.x < 0:
		return nil, fmt.Errorf("find times: none of the columns %s has a usual name (%s)",
			columnList(columns), remedyX)
	case t.x == t.y:
		return nil, fmt.Errorf("find times: column %s cannot be time and size",
			columnList(columns[t.x:t.x+1]))
	}

	t.axis = newAxis(columns[t.x], o)
	return t, nil
}

// mentionsX reports whether a word of a name is a usual name of times, as in "step_or_seconds".
func mentionsX(column string) bool {
	isX := func(word string) bool { return slices.Contains(xNames, word) }
	return slices.ContainsFunc(strings.Split(nameOf(column).base, "_"), isX)
}

func (t *table) times() *axis { return t.axis }

// row parses one sample. Empty lines, comments and repeated headers have none.
func (t *table) row(line string) (x, y float64, ok bool, err error) {
	text := strings.TrimSpace(line)
	if text == "" || isComment(text) || text == t.header {
		return 0, 0, false, nil
	}
	if isNumber := line[0] >= '0' && line[0] <= '9'; !isNumber && !strings.HasPrefix(line, t.prefix) {
		return 0, 0, false, nil
	}

	cells := split(line, t.delimiter)
	last := slices.Max(append([]int{t.x, t.y}, t.same...))
	if n := len(cells); n != len(t.columns) && (!t.loose || n <= last) {
		return 0, 0, false, fmt.Errorf("%d fields, not %d", n, len(t.columns))
	}

	if err := t.checkSame(cells); err != nil {
		return 0, 0, false, err
	}

	if y, err = parseSize(cells[t.y], t.unit); err != nil {
		return 0, 0, false, t.inField(t.y, err)
	}

	if t.axis == nil {
		return 0, y, true, nil
	}

	if x, err = t.axis.parse(cells[t.x]); err != nil {
		return 0, 0, false, t.inField(t.x, err)
	}

	return x, y, true, nil
}

func (t *table) inField(column int, err error) error {
	return fmt.Errorf("field %s: %w", quote(t.columns[column]), err)
}

// checkSame refuses a table of several processes or GPUs, which is no series.
func (t *table) checkSame(cells []string) error {
	isFirst := t.first == nil
	for i, column := range t.same {
		cell := cells[column]
		switch {
		case isFirst:
			t.first = append(t.first, strings.Clone(cell))
		case cell == t.first[i]:
		case len(t.same) == 1:
			return t.inField(column,
				fmt.Errorf("%s is another process than %s (keep the lines of one)", quote(cell),
					quote(t.first[i])))
		default:
			return t.inField(t.same[0],
				errors.New("the row is of another GPU, or instance, than the first one (keep the "+
					"lines of one)"))
		}
	}

	return nil
}

// split returns the cells of a line, without the spaces and quotation marks around them. Between
// blanks, a date and its time of day are one cell.
func split(line string, delimiter rune) (cells []string) {
	switch {
	case delimiter == blanks:
		for _, field := range strings.Fields(line) {
			last := len(cells) - 1
			if last >= 0 && len(cells[last]) == 10 && startsWithDate(cells[last]) &&
				len(field) > 2 && field[2] == ':' {
				cells[last] += " " + field
				continue
			}
			cells = append(cells, field)
		}

		return cells
	case !strings.Contains(line, `"`):
		cells = strings.Split(line, string(delimiter))
	default:
		r := csv.NewReader(strings.NewReader(line))
		r.Comma, r.LazyQuotes, r.TrimLeadingSpace = delimiter, true, delimiter != '\t'
		cells, _ = r.Read() // with lazy quotes any line can be read
	}

	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}

	return cells
}

// splitHeader returns the names in a header, count of them if possible. Between blanks, names may
// contain single spaces, and a unit in parentheses belongs to the name before it.
func splitHeader(header string, delimiter rune, count int) (names []string) {
	if delimiter != blanks {
		return split(header, delimiter)
	}

	for part := range strings.SplitSeq(header, "  ") {
		if part = strings.TrimSpace(part); part != "" {
			names = append(names, part)
		}
	}

	if len(names) == count {
		return names
	}

	names = nil
	for _, word := range strings.Fields(header) {
		if len(names) > 0 && word[0] == '(' {
			names[len(names)-1] += " " + word
			continue
		}
		names = append(names, word)
	}

	return names
}

// isValue reports whether a cell is a number, with or without a unit, a date or a time of day.
func isValue(cell string) bool {
	_, n := number(cell)
	if n == 0 {
		return false
	}
	_, isSize := unitOf(cell[n:], sizeUnits)
	_, isTime := unitOf(cell[n:], timeUnits)
	return isSize || isTime || strings.Trim(cell, "0123456789:.,+-/TZ ") == ""
}

func isText(cell string) bool {
	_, err := parseGap(cell, "")
	return err != nil && !isValue(cell)
}
