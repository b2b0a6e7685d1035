package nvml

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestUnavailable(t *testing.T) {
	t.Parallel()
	const bus = "sys/bus/pci/devices/0000:01:00.0/"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	gpu := fstest.MapFS{bus + "vendor": file("0x10de\n"), bus + "class": file("0x030200\n")}
	audio := fstest.MapFS{bus + "vendor": file("0x10de\n"), bus + "class": file("0x040300\n")}
	driver := fstest.MapFS{"proc/driver/nvidia/version": file("NVRM version\n")}

	for _, c := range []struct {
		err    error
		files  fstest.MapFS
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
		{ErrNotBuilt, nil, ""},
		{ErrNotBuilt, gpu, "a build for glibc"},
		{ErrNotBuilt, driver, "a build for glibc"},
		{fmt.Errorf("%w: odd", ErrLibrary), nil, "nvidia-smi"},
	} {
		root := t.TempDir()
		tracertest.NoError(t, os.CopyFS(root, c.files))

		got := mustBeUnavailable(t, unavailable(c.err, root), c.err)
		if (got.Remedy == "") != (c.remedy == "") || !strings.Contains(got.Error(), c.remedy) {
			t.Errorf("%v: remedy %q, want %q", got, got.Remedy, c.remedy)
		}
		without := strings.Contains(got.Error(), "no NVIDIA GPU on this machine")
		if without != (c.remedy == "") {
			t.Errorf("%v", got)
		}
	}
}
