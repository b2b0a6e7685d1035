package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestVersionIsOneLine(t *testing.T) {
	c := call(t, "version")
	c.mustEnd(0)
	if want := "allocscope v1.2.3-test " + runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version() + "\n"; c.stdout.String() != want {
		t.Errorf("%q, want %q", c.stdout.String(), want)
	}
}

func TestDoctorFindsThatAllIsWellHere(t *testing.T) {
	c := call(t, "doctor")
	c.mustEnd(0)
	for _, name := range []string{"kernel", "architecture", "privilege", "BTF", "tracefs", "BPF programs"} {
		mustSay(t, "stdout", c.stdout.String(), "ok    "+name)
	}
	for line := range strings.Lines(c.stdout.String()) {
		if strings.HasPrefix(line, "FAIL") {
			t.Errorf("says %s", line)
		}
	}
}

func TestDoctorNamesTheAllocatorOfAProcess(t *testing.T) {
	target := startSteps(t)
	c := call(t, "doctor", "--pid", itoa(target.PID()))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "ok    pid "+itoa(target.PID()), "ok    source heap", " malloc, ", " free, ", " in "+libcOf(t, target.PID())+"\n")
}

func TestDoctorFailsForAProcessThatIsNotThere(t *testing.T) {
	c := call(t, "doctor", "--pid", "2147483647")
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "FAIL  pid 2147483647", "no such process")
}

func TestTheCompletionScriptIsBashAndOffersTheFlags(t *testing.T) {
	c := call(t, "completion", "bash")
	c.mustEnd(0)
	script := filepath.Join(t.TempDir(), "allocscope.bash")
	if err := os.WriteFile(script, []byte(c.stdout.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// What bash-completion would provide, for a shell without it.
	const helper = `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
		compopt() { :; }; __ltrim_colon_completions() { :; }
		. "$1"; COMP_TYPE=9 COMP_WORDS=("$2" trace --snap) COMP_CWORD=2 COMP_LINE="$2 trace --snap" COMP_POINT=${#COMP_LINE}
		__start_allocscope; printf '%s\n' "${COMPREPLY[@]}"`
	out, err := exec.Command("bash", "-c", helper, "bash", script, binary).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "--snapshot-every" {
		t.Errorf("bash completes --snap to %q, %v", out, err)
	}
}

func TestHelpNamesTheCommandsAndGoesToStdout(t *testing.T) {
	c := call(t, "--help")
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "trace ", "doctor ", "version ", "completion ")
	c = call(t, "trace", "--help")
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "--pid", "--duration", "--warmup", "--interval", "(default auto)", "--overhead", "(default 3%)", "--max-live", "--json", "Ctrl-C")
}
