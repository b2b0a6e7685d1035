package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// withNVML gives a command the stand-in for libnvidia-ml.so.1, where the dynamic linker looks for it.
func withNVML(t *testing.T, cmd *exec.Cmd, answers string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(tracertest.BuildNVML(t), filepath.Join(dir, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "answers")
	if err := os.WriteFile(file, []byte(answers), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Environ(), "LD_LIBRARY_PATH="+dir, "NVML_STUB="+file)
	return cmd
}

func TestDoctorCountsTheGPUs(t *testing.T) {
	t.Parallel()
	c := begin(t, withNVML(t, allocscope(t, "doctor"), "version 575.57.08\ncount 2\nmemory.0 1 9\nmig.1 1\nmemory.1.0 1 9\nmemory.1.2 1 9\n"))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "ok    NVML                   driver 575.57.08, GPUs: 2, MIG devices: 2\n")
}

func TestDoctorSaysWhatNVMLDoesNotTell(t *testing.T) {
	t.Parallel()
	c := begin(t, withNVML(t, allocscope(t, "doctor"), "count 1\nmemory.0 1 9\ncompute.0 !4\n"))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "part  NVML ", "GPUs: 1; GPU 0: compute processes: no permission (run as root on the host)\n", "-> trace goes on with what there is")
}

func TestDoctorSaysThatLibraryAndDriverDiffer(t *testing.T) {
	t.Parallel()
	c := begin(t, withNVML(t, allocscope(t, "doctor"), "init 18\n"))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "part  NVML ", "different versions\n", "-> the driver was updated")
}

// Where all of a program is bound at its start, whatever is missing of NVML would end it.
func TestTheCommandRunsWhereProgramsAreBoundAtTheirStart(t *testing.T) {
	t.Parallel()
	cmd := allocscope(t, "version")
	cmd.Env = append(cmd.Environ(), "LD_BIND_NOW=1")
	c := begin(t, cmd)
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "allocscope ")
}

func TestABuildWithoutCgoSaysThatNVMLIsOff(t *testing.T) {
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
	mustSay(t, "stdout", c.stdout.String(), "part  NVML                   built without cgo: NVML is off\n",
		"-> install gcc and build with CGO_ENABLED=1")
}
