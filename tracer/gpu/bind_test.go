//go:build cgo

package nvml

import (
	"debug/elf"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What is open is bound at the start of a program, or ends it, on some machines.
func TestNoNameOfNVMLIsLeftToTheDynamicLinker(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	names, err := file.ImportedSymbols()
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v: the test is wrong", names, err)
	}
	for _, symbol := range names {
		if strings.HasPrefix(symbol.Name, "nvml") {
			t.Errorf("%s is open: go generate ./tracer/gpu", symbol.Name)
		}
	}
}

func TestAProgramThatIsBoundAtItsStartRuns(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "-test.list", "^"+t.Name()+"$")
	command.Env = append(os.Environ(), "LD_BIND_NOW=1")
	if out, err := command.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != t.Name() {
		t.Errorf("%v: %s", err, out)
	}
}
