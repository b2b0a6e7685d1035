package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a file system with some files: their content by path.
func machine(t *testing.T, files map[string]string) string {
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

func TestTheRemedyIsThatOfTheMachine(t *testing.T) {
	t.Parallel()
	const bus = "sys/bus/pci/devices/0000:01:00.0/"
	gpu := map[string]string{bus + "vendor": "0x10de\n", bus + "class": "0x030200\n"}
	sound := map[string]string{bus + "vendor": "0x10de\n", bus + "class": "0x040300\n"}
	driver := map[string]string{"proc/driver/nvidia/version": "NVRM version\n"}
	for _, c := range []struct {
		err    error
		files  map[string]string
		remedy string // empty: none
	}{
		{ErrNoLibrary, nil, ""},
		{ErrNoLibrary, sound, ""},
		{ErrNoLibrary, gpu, "install its driver"},
		{ErrNoLibrary, driver, "NVIDIA_DRIVER_CAPABILITIES"},
		{ErrNoDriver, nil, ""},
		{ErrNoDriver, gpu, "modprobe nvidia"},
		{ErrMismatch, gpu, "reboot"},
		{ErrNoPermission, gpu, "run as root"},
		{ErrNotBuilt, nil, "CGO_ENABLED=1"},
		{fmt.Errorf("%w: odd", ErrLibrary), nil, "nvidia-smi"},
	} {
		absence := mustBeAbsent(t, absence(c.err, machine(t, c.files)), c.err)
		if (absence.Remedy == "") != (c.remedy == "") || !strings.Contains(absence.Remedy, c.remedy) {
			t.Errorf("%v: remedy %q, want %q", absence, absence.Remedy, c.remedy)
		}
		if says := strings.Contains(absence.Error(), "no NVIDIA GPU on this machine"); says != (c.remedy == "") {
			t.Errorf("%v", absence)
		}
	}
}

func TestADriverThatDoesNotStartIsAnAbsence(t *testing.T) {
	t.Parallel()
	_, err := open(&fakeDriver{startError: ErrMismatch}, patient)
	mustBeAbsent(t, err, ErrMismatch)
}
