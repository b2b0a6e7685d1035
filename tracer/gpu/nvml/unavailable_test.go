package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeFiles creates a file system with these files, their content by path.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	const bus = "sys/bus/pci/devices/0000:01:00.0/"
	gpu := map[string]string{bus + "vendor": "0x10de\n", bus + "class": "0x030200\n"}
	audio := map[string]string{bus + "vendor": "0x10de\n", bus + "class": "0x040300\n"}
	driver := map[string]string{"proc/driver/nvidia/version": "NVRM version\n"}

	for _, c := range []struct {
		err    error
		files  map[string]string
		remedy string // empty: none
	}{
		{ErrNoLibrary, nil, ""},
		{ErrNoLibrary, audio, ""},
		{ErrNoLibrary, gpu, "install its driver"},
		{ErrNoLibrary, driver, "NVIDIA_DRIVER_CAPABILITIES"},
		{ErrNoDriver, nil, ""},
		{ErrNoDriver, gpu, "modprobe nvidia"},
		{ErrMismatch, gpu, "reboot"},
		{ErrNoPermission, gpu, "run as root"},
		{ErrNotBuilt, nil, "CGO_ENABLED=1"},
		{fmt.Errorf("%w: odd", ErrLibrary), nil, "nvidia-smi"},
	} {
		got := mustBeUnavailable(t, unavailable(c.err, writeFiles(t, c.files)), c.err)
		if (got.Remedy == "") != (c.remedy == "") || !strings.Contains(got.Error(), c.remedy) {
			t.Errorf("%v: remedy %q, want %q", got, got.Remedy, c.remedy)
		}
		without := strings.Contains(got.Error(), "no NVIDIA GPU on this machine")
		if without != (c.remedy == "") {
			t.Errorf("%v", got)
		}
	}
}
