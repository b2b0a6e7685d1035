package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

func TestATableOfNothingSaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := printResult(&out, &summary.Summary{Process: summary.Process{PID: 42, Command: "job"}, DurationS: 1.25, Ended: summary.EndedDuration}, "/tmp/my folder"); err != nil {
		t.Fatal(err)
	}
	mustSay(t, "the table", out.String(), "job (PID 42), 1.2 s, as long as asked for\n", "Nothing that was traced accumulated", "allocscope view '/tmp/my folder'\n", "'/tmp/my folder/growth.pb.gz'\n")
	if strings.Contains(out.String(), "RSS") {
		t.Errorf("speaks of an RSS that is not known:\n%s", out.String())
	}
}
