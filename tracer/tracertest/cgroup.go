package tracertest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// LimitMemory moves a process to a cgroup of its own with a limit of bytes, without swap, and returns
// the path of the cgroup in its hierarchy. The cgroup is removed when the process has ended.
func LimitMemory(t testing.TB, pid, bytes int) string {
	t.Helper()
	NeedsRoot(t)
	root, limit, swap, withoutSwap := "/sys/fs/cgroup", "memory.max", "memory.swap.max", 0
	if info, err := os.Stat(root + "/memory"); err == nil && info.IsDir() { // version 1
		root, limit = root+"/memory", "memory.limit_in_bytes"
		swap, withoutSwap = "memory.memsw.limit_in_bytes", bytes // with memory
	} else {
		must(t, os.WriteFile(root+"/cgroup.subtree_control", []byte("+memory"), 0))
	}

	cgroup := Must(os.MkdirTemp(root, "allocscope-test-"))(t)
	t.Cleanup(func() { // before the target is waited for
		for range 1000 {
			if os.Remove(cgroup) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is not empty", cgroup)
	})

	write := func(name string, value int) error {
		return os.WriteFile(filepath.Join(cgroup, name), []byte(strconv.Itoa(value)), 0)
	}
	must(t, write(limit, bytes))
	_ = write(swap, withoutSwap) // a kernel without swap accounting has no such file
	must(t, write("cgroup.procs", pid))
	return "/" + filepath.Base(cgroup)
}
