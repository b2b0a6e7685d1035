package series

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// A table is a file with a sample in each line, in columns.
type table struct {
	delimiter byte
	only      []byte   // lines that begin otherwise hold no samples; nil: all do
	header    []byte   // which may come again; nil: none
	columns   []string // by name, or by number from 1
	x, y, pid int      // columns, from 0; -1: none
	gpu       []int    // columns that say which GPU, or instance of one, a row is of
	loose     bool     // lines may have more cells, and fewer where these are not needed
	axis      *axis
	unit      float64 // bytes, of sizes that carry none; 0: not told
	process   []byte  // in the first row
	device    []byte  // the same, of the GPU
	cells     [][]byte
}

// newTable finds the columns. The error says which cannot be found.
func newTable(delimiter byte, columns []string, o Options) (*table, error) {
	t := &table{delimiter: delimiter, columns: columns, x: -1}
	var err error
	if t.y, err = find(columns, o.Y, yNames); err != nil {
		return nil, err
	}
	if t.y < 0 {
		return nil, fmt.Errorf("find sizes: none of the columns %s has a usual name (choose one with --y)", list(columns))
	}
	if t.pid, err = find(columns, "", []string{"pid"}); err != nil {
		return nil, err
	}
	t.gpu = gpuColumns(columns)
	t.unit, _ = sizeUnit(o.Unit)
	if o.Unit == "" {
		t.unit = nameOf(columns[t.y]).sizeOf()
	}
	if o.Every > 0 {
		return t, nil
	}
	if t.x, err = find(columns, o.X, xNames); err != nil {
		return nil, err
	}
	if t.x < 0 && len(columns) == 2 && mentionsX(columns[1-t.y]) {
		t.x = 1 - t.y // there is no other
	}
	if t.x < 0 {
		return nil, fmt.Errorf("find times: none of the columns %s has a usual name (%s)", list(columns), remedyX)
	}
	if t.x == t.y {
		return nil, fmt.Errorf("find times: column %s cannot be time and size", list(columns[t.x:t.x+1]))
	}
	t.axis = newAxis(columns[t.x], o)
	return t, nil
}

const remedyX = "choose one with --x, or give the time between rows with --every"

func (t *table) times() *axis { return t.axis }

// row reads one sample. Empty lines, comments and repeated headers hold none.
func (t *table) row(line []byte) (x, y float64, ok bool, err error) {
	if len(line) == 0 || !isDigit(line[0]) {
		if t.only != nil && !bytes.HasPrefix(line, t.only) {
			return 0, 0, false, nil
		}
		if text := bytes.TrimSpace(line); len(text) == 0 || text[0] == '#' || t.header != nil && bytes.Equal(text, t.header) {
			return 0, 0, false, nil
		}
	}
	t.cells = split(t.cells[:0], line, t.delimiter)
	if n := len(t.cells); n != len(t.columns) && (!t.loose || n <= max(t.x, t.y, t.pid)) {
		return 0, 0, false, fmt.Errorf("%d fields, not %d", n, len(t.columns))
	}
	if err := t.sameProcess(); err != nil {
		return 0, 0, false, err
	}
	if err := t.sameGPU(); err != nil {
		return 0, 0, false, err
	}
	if y, err = parseSize(t.cells[t.y], t.unit); err != nil {
		return 0, 0, false, t.inField(t.y, err)
	}
	if t.axis == nil {
		return 0, y, true, nil
	}
	if x, err = t.axis.parse(t.cells[t.x]); err != nil {
		return 0, 0, false, t.inField(t.x, err)
	}
	return x, y, true, nil
}

func (t *table) inField(column int, err error) error {
	return fmt.Errorf("field %s: %w", quote([]byte(t.columns[column])), err)
}

// sameProcess refuses a table of several processes, which is no series.
func (t *table) sameProcess() error {
	if t.pid < 0 {
		return nil
	}
	pid := t.cells[t.pid]
	if t.process == nil {
		t.process = bytes.Clone(pid)
	}
	if !bytes.Equal(pid, t.process) {
		return t.inField(t.pid, fmt.Errorf("%s is another process than %s (keep the lines of one)", quote(pid), quote(t.process)))
	}
	return nil
}

// gpuColumns are those by which gpus.csv of a trace tells GPUs; none: it is another file.
func gpuColumns(columns []string) []int {
	gpu, instance := slices.Index(columns, "gpu"), slices.Index(columns, "instance")
	if gpu < 0 || instance < 0 {
		return nil
	}
	return []int{gpu, instance}
}

// sameGPU refuses a table of several GPUs, which is no series.
func (t *table) sameGPU() error {
	var device []byte
	for _, column := range t.gpu {
		device = append(append(device, t.cells[column]...), ' ')
	}
	if t.device == nil {
		t.device = device
	}
	if !bytes.Equal(device, t.device) {
		return t.inField(t.gpu[0], errors.New("the row is of another GPU, or instance, than the first one (keep the lines of one)"))
	}
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// numbered finds the columns of a table without a header: the only one, or times and sizes, unless the user says otherwise.
func numbered(delimiter byte, count int, o Options) (*table, error) {
	columns := make([]string, count)
	for i := range columns {
		columns[i] = strconv.Itoa(i + 1)
	}
	if o.Y == "" && count > 2 {
		return nil, errors.New("find sizes: the columns have no names (choose one by its number with --y, and one with --x)")
	}
	if o.Y == "" {
		o.Y = strconv.Itoa(count)
	}
	if o.X == "" && count == 2 && o.Every == 0 && o.Y == "2" {
		o.X = "1"
	}
	return newTable(delimiter, columns, o)
}
