package census

import (
	"reflect"
	"testing"
	"time"
)

func TestGrown(t *testing.T) {
	before := &Result{PID: 1, Elapsed: time.Minute, Types: []TypeCount{
		{Type: "dict", Count: 100, Bytes: 6400, Margin: 30},
		{Type: "list", Count: 50, Bytes: 4000},
		{Type: "int", Count: 10, Bytes: 280},
	}}
	after := &Result{PID: 1, Elapsed: 3 * time.Minute, Types: []TypeCount{
		{Type: "str", Count: 20, Bytes: 1000},                 // new
		{Type: "dict", Count: 300, Bytes: 19_200, Margin: 40}, // 200 more, +-50
		{Type: "list", Count: 49, Bytes: 9000},                // fewer, though larger
		{Type: "int", Count: 40, Bytes: 1120, Margin: 30},     // 30 more, +-30
	}}
	want := []TypeGrowth{
		{Type: "dict", Before: 100, After: 300, Bytes: 12_800, PerMinute: 100, Low: 75, High: 125},
		{Type: "str", After: 20, Bytes: 1000, PerMinute: 10, Low: 10, High: 10},
	}
	if got := Grown(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	other, incomplete := *after, *after
	other.PID, incomplete.Missing = 2, "objects above 512 bytes"
	for name, after := range map[string]*Result{
		"another process": &other, "another part": &incomplete, "no time": before,
	} {
		if got := Grown(before, after); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
