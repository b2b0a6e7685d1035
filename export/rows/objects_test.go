package rows

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestObjects(t *testing.T) {
	result := &census.Result{PID: 42, Elapsed: 61_500 * time.Millisecond, Types: []census.TypeCount{
		{Type: "PIL.Image.Image", Count: 1021.6, Bytes: 57_209.4, Margin: 3.2},
		{Type: `=HYPERLINK("http://x").T`, Count: 2, Bytes: 96},
		{Type: "@SUM(1)", Count: 2, Bytes: 96},
		{Type: "-1+1", Count: 2, Bytes: 96},
		{Type: "+1", Count: 2, Bytes: 96},
		{Type: "", Count: 2, Bytes: 96},
		{Type: "a \"type\",\nof\x1b[31m " + strings.Repeat("x", 5000), Count: 1, Bytes: 48},
	}}
	for range 100 {
		result.Types = append(result.Types, census.TypeCount{Type: "dict"})
	}

	var buf bytes.Buffer
	w, err := NewObjectsWriter(&buf)
	if err == nil {
		err = w.Write(ObjectRowsOf(result)...)
	}
	tracertest.NoError(t, err)
	read := tracertest.Must(csv.NewReader(&buf).ReadAll())(t)
	if len(read) != 1+maxObjectTypes {
		t.Fatalf("%d lines", len(read))
	}
	for i, want := range [][]string{
		{"time_s", "pid", "type", "count", "bytes", "margin"},
		{"61.500", "42", "PIL.Image.Image", "1022", "57209", "4"},
		{"61.500", "42", `'=HYPERLINK("http://x").T`, "2", "96", "0"}, // a formula in a spreadsheet
		{"61.500", "42", "'@SUM(1)", "2", "96", "0"},
		{"61.500", "42", "'-1+1", "2", "96", "0"},
		{"61.500", "42", "'+1", "2", "96", "0"},
		{"61.500", "42", "", "2", "96", "0"},
		{"61.500", "42", "a \"type\",?of?[31m " + strings.Repeat("x", 282) + "…", "1", "48", "0"},
	} {
		if !reflect.DeepEqual(read[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, read[i], want)
		}
	}
}
