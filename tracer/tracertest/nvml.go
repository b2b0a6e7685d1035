package tracertest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuildNVML compiles testdata/nvml.c, the stand-in for libnvidia-ml.so.1, against NVIDIA's header.
// It returns the path. The variable NVML_STUB names the file of its answers.
func BuildNVML(t testing.TB, flags ...string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	header := "-I" + filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml")
	return Build(t, "nvml.c", append([]string{"-shared", "-fPIC", header}, flags...)...)
}
