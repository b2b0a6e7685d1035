package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export"
)

func TestAQuotedPathIsOneWordForTheShell(t *testing.T) {
	for _, path := range []string{
		"allocscope-42-20260102-030405/growth.pb.gz", "/tmp/a b", "it's", "''", "$HOME", "`id`", "$(id)", "a;b", "a&b", "a|b", "*", "~", "#x", "!x", `back\slash`,
		"new\nline", "tab\t", "\xff\xfe", "é", "a=b", "{a,b}", "\"", "-dash", "\x1b[31m",
	} {
		out, err := exec.Command("sh", "-c", "printf %s. "+shellQuote(path)).Output()
		if err != nil || string(out) != path+"." {
			t.Errorf("%q is quoted as %s, which the shell reads as %q, %v", path, shellQuote(path), out, err)
		}
	}
}

func TestAPlainPathIsNotQuoted(t *testing.T) {
	if path := "/home/me/allocscope-42_x+y/growth.pb.gz"; shellQuote(path) != path {
		t.Errorf("quoted as %s", shellQuote(path))
	}
}

func TestATableOfNothingSaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := printResult(&out, &export.Summary{Process: export.Process{PID: 42, Command: "job"}, DurationS: 1.25, Ended: export.EndedDuration}, "/tmp/my folder"); err != nil {
		t.Fatal(err)
	}
	mustSay(t, "the table", out.String(), "job (PID 42), 1.2 s, as long as asked for\n", "Nothing that was traced accumulated", "'/tmp/my folder/growth.pb.gz'\n")
	if strings.Contains(out.String(), "RSS") {
		t.Errorf("speaks of an RSS that is not known:\n%s", out.String())
	}
}
