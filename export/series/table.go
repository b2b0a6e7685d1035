package series

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const remedyX = "choose one with --x, or give the time between rows with --every"

// separators lie between the cells of a line, in the order in which they are tried.
var separators = []separator{
	{comma: '\t'},
	{comma: ';'},
	{comma: ','},
	{names: regexp.MustCompile(`\S+(?: \S+)*`)},       // names contain single blanks
	{names: regexp.MustCompile(`\S+(?:\s+\(\S*\))?`)}, // a unit in parentheses belongs to the name
}

// A separator is a character, or any number of blanks.
type separator struct {
	comma rune           // 0: blanks
	names *regexp.Regexp // of columns between blanks
}

// splitter returns the function that splits the lines of a file into cells.
func (s separator) splitter() func(line string) []string {
	if s.comma == 0 {
		return splitBlanks
	}

	source := strings.NewReader("")
	r := csv.NewReader(source)
	r.Comma, r.LazyQuotes, r.TrimLeadingSpace = s.comma, true, s.comma != '\t'
	r.FieldsPerRecord = -1

	return func(line string) []string {
		source.Reset(line)
		cells, _ := r.Read() // with lazy quotes any line can be read
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		return cells
	}
}

// splitBlanks splits a line between blanks. A date and its time of day are one cell.
func splitBlanks(line string) (cells []string) {
	for _, field := range strings.Fields(line) {
		last := len(cells) - 1
		isDay := last >= 0 && len(cells[last]) == 10 && startsWithDate(cells[last])
		if isDay && len(field) > 2 && field[2] == ':' {
			cells[last] += " " + field
			continue
		}
		cells = append(cells, field)
	}
	return cells
}

// A table is a file with one sample per line, in columns.
type table struct {
	split   func(line string) []string
	prefix  string   // of lines with samples
	header  string   // which may be repeated; empty: there is none
	columns []name   // named by numbers from 1 if there is no header
	isLoose bool     // lines may have more cells than columns
	x, y    int      // columns, from 0; x is -1 without times
	same    []int    // columns that must not change: the PID, or the GPU and its instance
	first   []string // cells of the first row
}

// mprofPattern matches memory_profiler's lines with sizes in MiB.
var mprofPattern = regexp.MustCompile(`^MEM [0-9.]+ [0-9.]+\s*$`)

// newMprof recognises the log of mprof. Its other lines are of functions and child processes.
func newMprof(rows []string, o Options) (*format, error) {
	if !slices.ContainsFunc(rows, mprofPattern.MatchString) {
		return nil, nil
	}

	columns := namesOf([]string{"kind", "memory (MiB)", "time"})
	t := &table{split: splitBlanks, prefix: "MEM ", columns: columns}
	return t.format(o)
}

// newHeaded recognises a table whose columns are named by its first line, or by the comment above
// that.
func newHeaded(rows []string, o Options) (*format, error) {
	first := slices.IndexFunc(rows, isData)
	for _, s := range separators {
		split := s.splitter()
		for _, header := range rows[max(first-1, 0) : first+1] {
			isBelow := func(row string) bool { return isData(row) && row != header }
			below := slices.IndexFunc(rows[first:], isBelow)
			if below < 0 {
				continue
			}

			t := &table{split: split, header: strings.TrimSpace(header)}
			text := strings.TrimLeft(t.header, "# ")
			switch {
			case s.comma == 0:
				t.columns = namesOf(s.names.FindAllString(text, -1))
			case strings.ContainsRune(text, s.comma):
				t.columns = namesOf(split(text))
			}

			switch cells := split(rows[first+below]); {
			case s.comma == 0 && psPattern.MatchString(text) && t.hasColumn("RSS"):
				return t.formatPS(o)
			case t.isNamed(cells, o):
				return t.format(o)
			}
		}
	}

	return nil, nil
}

func isData(row string) bool { return row[0] != '#' }

// isNamed reports whether the columns name the cells below. Rows with free text need a usual or
// wanted name of sizes.
func (t *table) isNamed(cells []string, o Options) bool {
	isNumber := func(column name) bool { return isValue(column.text) }
	if len(t.columns) != len(cells) || slices.ContainsFunc(t.columns, isNumber) {
		return false
	}
	_, err := t.column("sizes", o.Y, yNames, "")
	return err == nil || !slices.ContainsFunc(cells, isText)
}

func (t *table) hasColumn(text string) bool {
	return slices.ContainsFunc(t.columns, func(c name) bool { return c.text == text })
}

// psPattern matches the headings of ps(1).
var psPattern = regexp.MustCompile(`^(?:(?:PID|PPID|USER|UID|RSS|RSZ|VSZ|%MEM|%CPU|C|ELAPSED|` +
	`TIME|STIME|START|STARTED|TT|TTY|STAT|S|NI|PRI|NLWP|LWP|CMD|COMMAND)(?:\s+|$))+$`)

// formatPS is the output of ps, called repeatedly. Sizes are in KiB, and commands have blanks.
// TIME is CPU time, and no axis.
func (t *table) formatPS(o Options) (*format, error) {
	t.isLoose = true
	o.Unit = cmp.Or(o.Unit, "KiB")
	if o.X == "" && o.Every == 0 && !t.hasColumn("ELAPSED") {
		return nil, errors.New("find times: ps wrote none (call it with -o etimes,rss, or give " +
			"the time between its calls with --every)")
	}

	o.X = cmp.Or(o.X, "ELAPSED")
	f, err := t.format(o)
	if err == nil && f.axis != nil {
		f.axis.isAge = t.columns[t.x].text == "ELAPSED"
	}

	return f, err
}

// newHeadless recognises a table without names by its first row. The columns are the sizes, or
// times and sizes, unless the user chooses others.
func newHeadless(rows []string, o Options) (*format, error) {
	first := slices.IndexFunc(rows, isData)
	if first < 0 {
		return nil, nil
	}

	for _, s := range separators {
		t := &table{split: s.splitter()}
		cells := t.split(rows[first])
		if s.comma != 0 && len(cells) < 2 || slices.ContainsFunc(cells, isText) {
			continue
		}

		if len(cells) > 2 && o.Y == "" {
			return nil, errors.New("find sizes: the columns have no names (choose one by its " +
				"number with --y, and one with --x)")
		}

		for i := range cells {
			t.columns = append(t.columns, name{text: strconv.Itoa(i + 1)})
		}

		if len(cells) <= 2 {
			t.columns[0].base, t.columns[len(cells)-1].base = "elapsed", "memory"
		}

		return t.format(o)
	}

	return nil, nil
}

// format chooses the columns. The error names those that it cannot find.
func (t *table) format(o Options) (f *format, err error) {
	if t.y, err = t.column("sizes", o.Y, yNames, "choose one with --y"); err != nil {
		return nil, err
	}

	f = &format{cells: t.cells, size: t.field(t.y)}
	f.unit = cmp.Or(sizeUnits[strings.ToLower(o.Unit)], t.columns[t.y].size)

	isGPUs := t.hasColumn("gpu") && t.hasColumn("instance") // gpus.csv of a trace
	for i, c := range t.columns {
		if c.base == "pid" || isGPUs && (c.text == "gpu" || c.text == "instance") {
			t.same = append(t.same, i)
		}
	}

	t.x = -1
	if o.Every > 0 {
		return f, nil
	}

	if t.x, err = t.column("times", o.X, xNames, remedyX); err != nil {
		return nil, err
	}

	if t.x == t.y {
		return nil, fmt.Errorf("find times: column %s cannot be time and size",
			quote(t.columns[t.x].text))
	}

	f.time, f.axis = t.field(t.x), newAxis(t.columns[t.x], o)
	return f, nil
}

// column returns the column that the user wants, by its name or its number, or else the one with
// the most usual name. what, and how to choose another one, are for the error.
func (t *table) column(what, want string, usual []string, remedy string) (int, error) {
	if i := find(t.columns, want, usual); i >= 0 {
		return i, nil
	}

	if n, err := strconv.Atoi(want); err == nil && n >= 1 && n <= len(t.columns) {
		return n - 1, nil
	}

	const limit = 12
	var quoted []string
	for _, c := range t.columns[:min(limit, len(t.columns))] {
		quoted = append(quoted, quote(c.text))
	}

	list := strings.Join(quoted, ", ")
	if more := len(t.columns) - limit; more > 0 {
		list += fmt.Sprintf(", %d more", more)
	}

	if want != "" {
		return -1, fmt.Errorf("find column %.40q: there are %s", want, list)
	}
	return -1, fmt.Errorf("find %s: none of the columns %s has a usual name (%s)", what, list,
		remedy)
}

func (t *table) field(column int) string { return "field " + quote(t.columns[column].text) }

// cells returns the cells of one sample. Empty lines, comments and repeated headers have none.
func (t *table) cells(line string) (size, time string, ok bool, err error) {
	text := strings.TrimSpace(line)
	if text == "" || !isData(text) || text == t.header || !strings.HasPrefix(text, t.prefix) {
		return "", "", false, nil
	}

	cells := t.split(line)
	if n := len(cells); n < len(t.columns) || n > len(t.columns) && !t.isLoose {
		return "", "", false, fmt.Errorf("%d fields, not %d", n, len(t.columns))
	}

	if err := t.checkSame(cells); err != nil {
		return "", "", false, err
	}

	if t.x >= 0 {
		time = cells[t.x]
	}

	return cells[t.y], time, true, nil
}

// checkSame refuses a table of several processes or GPUs, which is no series.
func (t *table) checkSame(cells []string) error {
	if t.first == nil {
		t.first = cells
	}

	for _, column := range t.same {
		cell, first := cells[column], t.first[column]
		switch {
		case cell == first:
		case t.columns[column].base == "pid":
			return fmt.Errorf("%s: %s is another process than %s (keep the lines of one)",
				t.field(column), quote(cell), quote(first))
		default:
			return fmt.Errorf("%s: the row is of another GPU, or instance, than the first one "+
				"(keep the lines of one)", t.field(column))
		}
	}

	return nil
}
