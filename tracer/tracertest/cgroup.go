package tracertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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

// NewCgroup makes a cgroup, which is removed when the test ends and its processes with it.
func NewCgroup(t testing.TB) Cgroup {
	t.Helper()
	const v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
	controllers, err := os.ReadFile(filepath.Join(v2, "cgroup.controllers"))
	g := Cgroup{v1, err == nil && bytes.Contains(controllers, []byte("memory"))}
	if g.IsV2 {
		g.Folder = v2
		NoError(t, os.WriteFile(filepath.Join(v2, "cgroup.subtree_control"), []byte("+memory"), 0o644))
	}
	return g.Child(t, fmt.Sprintf("allocscope-test-%d-%d", os.Getpid(), cgroups.Add(1)))
}

// Child makes a cgroup below.
func (g Cgroup) Child(t testing.TB, name string) Cgroup {
	t.Helper()
	g.Folder = filepath.Join(g.Folder, name)
	NoError(t, os.Mkdir(g.Folder, 0o755))
	t.Cleanup(func() {
		for range 100 { // until its processes are gone
			if os.Remove(g.Folder) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return g
}

// SetLimit limits the memory, in bytes.
func (g Cgroup) SetLimit(t testing.TB, limit int64) {
	t.Helper()
	name := "memory.limit_in_bytes"
	if g.IsV2 {
		name = "memory.max"
	}
	NoError(t, os.WriteFile(filepath.Join(g.Folder, name), []byte(fmt.Sprint(limit)), 0o644))
}

// Charged is the memory that the kernel has charged, in bytes.
func (g Cgroup) Charged(t testing.TB) (bytes int64) {
	t.Helper()
	name := "memory.usage_in_bytes"
	if g.IsV2 {
		name = "memory.current"
	}
	raw, err := os.ReadFile(filepath.Join(g.Folder, name))
	NoError(t, err)
	_, err = fmt.Sscan(string(raw), &bytes)
	NoError(t, err)
	return bytes
}
