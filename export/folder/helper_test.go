package folder

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// mountTmpfs mounts a tmpfs of 64 KiB for the test.
func mountTmpfs(t *testing.T) string {
	t.Helper()
	tracertest.NeedsRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("allocscope-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV,
		"size=64k,mode=755"); err != nil {
		t.Fatalf("mount tmpfs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// current is the user who runs the test: no file changes hands.
func current() Owner { return Owner{os.Geteuid(), os.Getegid()} }
