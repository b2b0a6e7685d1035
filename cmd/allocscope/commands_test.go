package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	t.Run("version", testVersion)
	t.Run("completion", testCompletion)
	t.Run("bound at start", testBindNow)
	t.Run("doctor", testDoctor)
	t.Run("doctor of a process", testDoctorPID)
	t.Run("doctor without privilege", testDoctorUnprivileged)
	t.Run("doctor without cgo", testDoctorNoCgo)
}

func testVersion(t *testing.T) {
	c := call(t, "version")
	c.mustEnd(0)
	if want := "allocscope v1.2.3-test " + runtime.GOOS + "/" + runtime.GOARCH + " " +
		runtime.Version() + "\n"; c.stdout.String() != want {
		t.Errorf("%q, want %q", c.stdout.String(), want)
	}
}

func testDoctor(t *testing.T) {
	c := call(t, "doctor")
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "ok    kernel", "ok    privilege", "ok    BPF programs")
	if strings.Contains(c.stdout.String(), "FAIL") {
		t.Errorf("says\n%s", c.stdout.String())
	}
}

func testDoctorPID(t *testing.T) {
	target := startSteps(t)
	c := call(t, "doctor", "--pid", itoa(target.PID()))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "ok    pid "+itoa(target.PID()), "ok    source heap",
		" malloc, ", " free, ", "/libc.so.6\n")

	c = call(t, "doctor", "--pid", "2147483647")
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "FAIL  pid 2147483647", "no such process")
}

func testCompletion(t *testing.T) {
	c := call(t, "completion", "bash")
	c.mustEnd(0)
	script := filepath.Join(t.TempDir(), "allocscope.bash")
	writeFile(t, script, c.stdout.String(), 0o600)

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

func testDoctorUnprivileged(t *testing.T) {
	c := begin(t, unprivileged(allocscope(t, "doctor")))
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "FAIL  privilege",
		"uid 65534 without CAP_BPF, CAP_PERFMON\n", "-> run with sudo", "FAIL  BPF programs",
		"warn  privilege", "without CAP_SYS_PTRACE: ", "without CAP_CHECKPOINT_RESTORE: ",
		"without CAP_DAC_READ_SEARCH: ")
	mustSay(t, "stderr", c.stderr.String(), "error: ", "cannot trace here")
}

// Where all of a program is bound at its start, whatever is missing of NVML would end it.
func testBindNow(t *testing.T) {
	t.Parallel()
	cmd := allocscope(t, "version")
	cmd.Env = append(cmd.Environ(), "LD_BIND_NOW=1")
	c := begin(t, cmd)
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "allocscope ")
}

func testDoctorNoCgo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "allocscope")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}

	cmd := allocscope(t, "doctor")
	cmd.Path = program
	c := begin(t, cmd)
	c.mustEnd(0)

	mustSay(t, "stdout", c.stdout.String(),
		"warn  NVML                   built without cgo: NVML is off\n",
		"-> install gcc and build with CGO_ENABLED=1")
}
