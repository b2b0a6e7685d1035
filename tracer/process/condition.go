package process

import (
	"bytes"
	"path/filepath"
	"sync"

	"github.com/allocscope/allocscope/growth"
)

// Condition returns the condition of the process by its state and its cgroups; the zero value where
// they cannot be read.
func (p *Process) Condition() growth.Condition {
	status, err := p.Status()
	if err != nil {
		return growth.Condition{}
	}

	c := growth.Condition{}
	if status.MainEnded {
		c.Remaining = status.Threads
	}
	membership, _ := p.read("cgroup") // without it, it counts as not frozen
	switch {
	case status.State == 'T' || status.State == 't':
		c.Halt = growth.HaltStopped
	case isFrozen(freezers(), membership):
		c.Halt = growth.HaltFrozen
	}
	return c
}

// freezers are our mounts of the hierarchies that can freeze processes.
var freezers = sync.OnceValue(func() []hierarchy {
	raw, _ := ReadFile("/proc/self/mountinfo") // without it there are none
	return parseMounts(raw, "freezer")
})

// isFrozen reports whether the cgroup of a process is frozen, itself or by one above it, as far as our
// mounts show it. membership is the text of /proc/PID/cgroup.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/freezer-subsystem.html
// https://docs.kernel.org/admin-guide/cgroup-v2.html
func isFrozen(mounts []hierarchy, membership []byte) bool {
	for _, h := range mounts {
		path, ok := h.folder(h.membership(membership))
		if !ok {
			continue
		}

		name, frozen := "freezer.state", "FROZEN"
		if h.memoryFiles == memoryFilesV2 {
			name, frozen = "cgroup.events", "frozen 1"
		}
		raw, err := ReadFile(filepath.Join(h.mountPoint, filepath.Join(path...), name))
		if err == nil && bytes.Contains(raw, []byte(frozen)) {
			return true
		}
	}
	return false
}
