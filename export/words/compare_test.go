package words

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
)

func TestTracePair(t *testing.T) {
	a := summary.Summary{
		Started: time.Unix(1, 0), Process: summary.Process{
			PID: 7, Command: "python3 a.py", Executable: "/usr/bin/python3",
		},
	}
	b := a
	pair := TracePair{Before: &a, After: &b, IsResident: true}
	want := []string{"both are the same trace"}
	if notes := pair.Notes(); !slices.Equal(notes, want) {
		t.Errorf("of itself: %q", notes)
	}

	b.Started, b.Process.Command = time.Unix(2, 0), "python3 b.py"
	want = []string{"the programs differ: python3 a.py before, python3 b.py after"}
	if notes := pair.Notes(); !slices.Equal(notes, want) {
		t.Errorf("of another script: %q", notes)
	}
}
