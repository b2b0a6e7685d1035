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
	t.Run("bound at start", testBindNow)
	t.Run("doctor", testDoctor)
	t.Run("doctor of a process", testDoctorPID)
	t.Run("doctor without privilege", testDoctorUnprivileged)
	t.Run("doctor without cgo", testDoctorNoCgo)
}

func testVersion(t *testing.T) {
	want := "allocscope 1.2.3-test " + runtime.GOOS + "/" + runtime.GOARCH + " " +
		runtime.Version() + ", with NVML\n"
	for _, argument := range []string{"version", "--version"} {
		c := call(t, argument)
		c.mustEnd(0)
		if c.stdout.String() != want {
			t.Errorf("%s: %q, want %q", argument, c.stdout.String(), want)
		}
	}

	call(t, "version", "--json").mustPrint(`"version":"1.2.3-test"`, `"nvml":true`)
}

func testDoctor(t *testing.T) {
	c := call(t, "doctor")
	c.mustPrint("ok    kernel", "ok    privilege", "ok    BPF programs")
	if strings.Contains(c.stdout.String(), "FAIL") {
		t.Errorf("says\n%s", c.stdout.String())
	}
}

func testDoctorPID(t *testing.T) {
	target := startSteps(t)
	c := call(t, "doctor", itoa(target.PID()))
	c.mustPrint("ok    pid "+itoa(target.PID()), "ok    source heap",
		" malloc, ", " free, ", "/libc.so.6\n")

	c = call(t, "doctor", "--pid", "2147483647")
	c.mustEnd(1)
	mustSay(t, "stdout", c.stdout.String(), "FAIL  pid 2147483647", "no such process")
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
	begin(t, cmd).mustPrint("allocscope ")
}

func testDoctorNoCgo(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "allocscope")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, out)
	}

	cmd := allocscope(t, "doctor")
	cmd.Path = program
	begin(t, cmd).mustPrint("  NVML                   ", "this static build has no NVML")
	c := begin(t, &exec.Cmd{Path: program, Args: []string{program, "version"}})
	c.mustPrint(", without NVML (static build)\n")
}
