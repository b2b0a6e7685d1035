package run

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestShimObstacle(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(path(name), []byte(text), 0o755))
	}

	write("source.c", "int main(void) { return 0; }\n")
	for name, flag := range map[string]string{
		"static": "-static", "static-pie": "-static-pie", "dynamic": "-pie",
	} {
		out, err := exec.Command("gcc", flag, "-o", path(name), path("source.c")).CombinedOutput()
		if err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	elf := tracertest.Must(os.ReadFile(path("dynamic")))(t)
	elf[18] = 243 // e_machine: EM_RISCV
	write("foreign", string(elf))
	write("script", "#!"+path("static")+" argument\n")
	write("script of script", "#!"+path("script")+"\n")
	write("endless", "#!"+path("endless")+"\n")
	write("plain", "exit 0\n")
	write("empty", "")
	write("half", string(elf[:40]))

	for name, want := range map[string]string{
		"dynamic": "", "plain": "", "empty": "", "half": "", "none": "", "endless": "",
		"static": "/static is statically linked", "static-pie": "/static-pie is statically linked",
		"foreign": "/foreign is a program for EM_RISCV", "script": "/static is statically linked",
		"script of script": "/static is statically linked",
	} {
		got := shimObstacle(path(name))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestFindProgram(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		first + "/both": 0o644, second + "/both": 0o755, first + "/data": 0o644,
		second + "/only": 0o755,
	} {
		must(t, os.WriteFile(path, nil, mode))
	}

	path := first + ":" + second
	for name, want := range map[string]string{
		"both": second + "/both", "only": second + "/only", second + "/only": second + "/only",
	} {
		if got, err := findProgram(name, path); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	for name, want := range map[string]exit.Status{
		"none": 127, "data": 126, first: 126, first + "/none": 127, "": 127,
	} {
		_, err := findProgram(name, path)
		var status *exit.Error
		if !errors.As(err, &status) || status.Status != want {
			t.Errorf("%q: %v, want status %d", name, err, want)
		}
	}
}
