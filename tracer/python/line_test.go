package python

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// eachPython runs a test on the interpreters that pyenv has, of each version that is followed and has debug information.
func eachPython(t *testing.T, test func(t *testing.T, command string, minor int)) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for minor := 8; minor <= 13; minor++ {
		t.Run(fmt.Sprintf("on Python 3.%d", minor), func(t *testing.T) {
			pattern := filepath.Join(home, fmt.Sprintf(".pyenv/versions/3.%d.*/bin/python3.%d", minor, minor))
			commands, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			if len(commands) == 0 {
				t.Skipf("there is no %s (pyenv install 3.%d)", pattern, minor)
			}
			tested++
			test(t, commands[0], minor)
		})
	}
	if tested == 0 {
		t.Error("no interpreter is there to ask (install Python with pyenv)")
	}
}

// A tableAnswers is what an interpreter says of one line table: testdata/lines.py.
type tableAnswers struct {
	Code    string
	First   int
	Table   string
	Answers [][2]int // instructions and their line, from offset -1 on
}

func TestLineIsTheInterpretersOwn(t *testing.T) {
	eachPython(t, func(t *testing.T, command string, minor int) {
		asked := exec.Command(command, "-W", "ignore", "testdata/lines.py")
		asked.Stderr = os.Stderr
		output, err := asked.Output()
		if err != nil {
			t.Fatal(err)
		}
		codes, instructions := checkTables(t, json.NewDecoder(bytes.NewReader(output)), minor)
		if codes < 15000 || instructions < 500000 {
			t.Errorf("only %d code objects with %d instructions were compared", codes, instructions)
		}
		t.Logf("%d code objects, %d instructions", codes, instructions)
	})
}

// checkTables compares Line with all answers, and counts them.
func checkTables(t *testing.T, answers *json.Decoder, minor int) (codes, instructions int) {
	t.Helper()
	for answers.More() && !t.Failed() {
		var want tableAnswers
		if err := answers.Decode(&want); err != nil {
			t.Fatal(err)
		}
		table, err := hex.DecodeString(want.Table)
		if err != nil {
			t.Fatal(err)
		}
		code := &Code{FirstLine: want.First, minor: minor, table: table}
		offset := int32(-1)
		for _, run := range want.Answers {
			for range run[0] {
				// A line below 0 can be in no file.
				if line := code.Line(offset); line != max(0, run[1]) {
					t.Fatalf("%s: line %d at offset %d, want %d", want.Code, line, offset, run[1])
				}
				offset = (offset + 2) &^ 1
				instructions++
			}
		}
		codes++
	}
	return codes, instructions
}

func TestLineOfBrokenTables(t *testing.T) {
	for _, c := range []struct {
		name   string
		minor  int
		table  []byte
		offset int32
		want   int
	}{
		{"an empty table of 3.9 is all on the first line", 9, []byte{}, 100, 7},
		{"half a pair at the end of a table of 3.9 is no step", 9, []byte{0, 1, 0}, 100, 8},
		{"a line below 0 is none in 3.9", 9, []byte{0, 0x80}, 100, 0},
		{"an empty table of 3.10 reaches no instruction", 10, []byte{}, 0, 0},
		{"half a pair at the end of a table of 3.10 is no range", 10, []byte{2, 1, 2}, 2, 0},
		{"the step after a range without a line counts from the line before it", 10, []byte{2, 1, 2, 0x80, 2, 1}, 4, 9},
		{"an empty table of 3.11 reaches no instruction", 11, []byte{}, 0, 0},
		{"an instruction behind the table of 3.11 has no line", 11, []byte{0x80 | noLocation<<3, 0x80 | oneLine1<<3, 0, 0}, 4, 0},
		{"a step that is cut off counts as far as it is there", 11, []byte{0x80 | noColumns<<3, 0x40 | 4}, 0, 9},
		{"a step does not reach into the next entry", 11, []byte{0x80 | noColumns<<3, 0x40 | 4, 0x80 | oneLine1<<3}, 0, 9},
		{"a line that no int holds is none", 11, []byte{0x80 | noColumns<<3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f}, 0, 0},
		{"no number is too long", 11, append([]byte{0x80 | noColumns<<3, 0x42}, bytes.Repeat([]byte{0x40}, 1000)...), 0, 8},
		{"a table too long to be read has no lines", 11, nil, 0, 0},
		{"a table too long to be read has a first line", 11, nil, -1, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := &Code{FirstLine: 7, minor: c.minor, table: c.table}
			if line := code.Line(c.offset); line != c.want {
				t.Errorf("line %d, want %d", line, c.want)
			}
		})
	}
}

// Entries whose number goes on for ever must not be read to the end of the table each: that takes an hour.
func TestLineReadsEachByteOfATableOnce(t *testing.T) {
	table := bytes.Repeat([]byte{0x80 | noColumns<<3}, lineTableLimit)
	code := &Code{FirstLine: 7, minor: 11, table: table}
	if line := code.Line(math.MaxInt32); line != 0 {
		t.Errorf("line %d behind the table, want 0", line)
	}
}

// Whatever the table: a line is one that a file can have, and the same as when what follows it is cut off.
func FuzzLine(f *testing.F) {
	for minor := 8; minor <= 14; minor++ {
		f.Add(minor, 1, int32(4), []byte{2, 1, 4, 0x80, 6, 0xff, 0, 127})
		f.Add(minor, 100, int32(10), []byte{0x80, 0, 0xd9, 1, 0, 0xe2, 0x43, 3, 0xf0, 2, 0, 1, 1, 0xf8})
		f.Add(minor, math.MaxInt32, int32(-1), []byte{})
		f.Add(minor, -5, int32(math.MaxInt32), bytes.Repeat([]byte{0xe8}, 300))
	}
	f.Fuzz(func(t *testing.T, minor, first int, offset int32, table []byte) {
		code := &Code{FirstLine: first, minor: minor, table: table}
		line := code.Line(offset)
		if line < 0 || line > math.MaxInt32 {
			t.Errorf("line %d", line)
		}
		code.table = append(bytes.Clone(table), 0xff)
		if longer := code.Line(offset); line != 0 && minor >= 10 && longer != line {
			t.Errorf("line %d, and %d where the table goes on", line, longer)
		}
	})
}
