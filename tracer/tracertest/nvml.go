package tracertest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuildNVML compiles the stand-in for libnvidia-ml.so.1, testdata/nvml.c, against NVIDIA's header, and gives its path. A
// program that loads it finds the path of its answers in NVML_STUB.
func BuildNVML(t testing.TB, flags ...string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	header := "-I" + filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml")
	return Build(t, "nvml.c", append([]string{"-shared", "-fPIC", header}, flags...)...)
}
