package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostGolden is the report of leakingTrace as it was before anything was known of GPUs, without style and script.
const hostGolden = "testdata/host.html"

// A trace without device memory says nothing of it: neither its elements nor its data know more than they did.
func TestWithoutDeviceMemoryTheReportIsByteForByteAsBefore(t *testing.T) {
	trace := leakingTrace(t)
	trace.Rows = trace.Rows[:41]
	v, data := pageOf(trace)
	var got bytes.Buffer
	if err := body.ExecuteTemplate(&got, "body", v); err != nil {
		t.Fatal(err)
	}
	script, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	got.Write(append(script, '\n'))
	if *update {
		if err := os.WriteFile(hostGolden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(hostGolden); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the report is not %s (error %v): look at the difference that go test ./export/report -update makes", hostGolden, err)
	}
}
