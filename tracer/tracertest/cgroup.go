package tracertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

var cgroups atomic.Int64

// A Cgroup accounts memory, and has no limit before SetLimit.
type Cgroup struct {
	// Folder is its folder in the hierarchy of version 1 or 2 that accounts memory.
	Folder string
	// IsV2 is false of version 1.
	IsV2 bool
}

// NewCgroup makes a cgroup. When the test ends it is removed: its processes must have ended by then.
func NewCgroup(t testing.TB) Cgroup {
	t.Helper()
	NeedsRoot(t)
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	controllers, err := os.ReadFile(filepath.Join(v2, "cgroup.controllers"))
	g := Cgroup{v1, err == nil && bytes.Contains(controllers, []byte("memory"))}
	if g.IsV2 {
		g.Folder = v2
		g.write(t, "cgroup.subtree_control", "+memory")
	}
	return g.Child(t, fmt.Sprintf("allocscope-test-%d-%d", os.Getpid(), cgroups.Add(1)))
}

// Child makes a cgroup below.
func (g Cgroup) Child(t testing.TB, name string) Cgroup {
	t.Helper()
	g.Folder = filepath.Join(g.Folder, name)
	NoError(t, os.Mkdir(g.Folder, 0o755))
	t.Cleanup(func() {
		for range 1000 {
			if os.Remove(g.Folder) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is not empty", g.Folder)
	})
	return g
}

func (g Cgroup) write(t testing.TB, name, text string) {
	t.Helper()
	NoError(t, os.WriteFile(filepath.Join(g.Folder, name), []byte(text), 0o644))
}

// SetLimit limits the memory, in bytes.
func (g Cgroup) SetLimit(t testing.TB, limit int) {
	t.Helper()
	name := "memory.limit_in_bytes"
	if g.IsV2 {
		name = "memory.max"
	}
	g.write(t, name, strconv.Itoa(limit))
}

// Charged is the memory that the kernel has charged, in bytes.
func (g Cgroup) Charged(t testing.TB) int {
	t.Helper()
	name := "memory.usage_in_bytes"
	if g.IsV2 {
		name = "memory.current"
	}
	raw := Must(os.ReadFile(filepath.Join(g.Folder, name)))(t)
	return Must(strconv.Atoi(string(bytes.TrimSpace(raw))))(t)
}

// LimitMemory moves a process to a cgroup of its own with a limit of bytes, without swap, and returns
// the path of the cgroup in its hierarchy.
func LimitMemory(t testing.TB, pid, limit int) string {
	t.Helper()
	g := NewCgroup(t)
	g.SetLimit(t, limit)
	swap, none := "memory.memsw.limit_in_bytes", limit // with memory
	if g.IsV2 {
		swap, none = "memory.swap.max", 0
	}
	// A kernel without swap accounting has no such file.
	_ = os.WriteFile(filepath.Join(g.Folder, swap), []byte(strconv.Itoa(none)), 0o644)
	g.write(t, "cgroup.procs", strconv.Itoa(pid))
	return "/" + filepath.Base(g.Folder)
}
