package fleet

import (
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

const (
	// A process is not traced because its limit is nearly used up where it holds less than
	// minHeldShare of the limit: others hold the memory.
	minHeldShare = 0.1
	// fullMargin is how far below Options.NearLimit the use must fall before the limit counts as
	// nearly used up again.
	fullMargin = 0.05
)

// A limitUse is how much of a limit is used, in bytes. The zero value is of no limit.
type limitUse struct {
	used, limit int64
	// private is the anonymous and shared memory of the process meanwhile.
	private int64
}

// useOf returns how much is used of the limit that a process meets first, without page cache that
// the kernel can drop. Free swap is a part of the limit.
func useOf(m growth.SystemMemory, first growth.Headroom, private int64) limitUse {
	use := limitUse{used: first.Bytes - first.Left, limit: first.Bytes, private: private}
	switch first.Of {
	case growth.LimitMachine:
		use.limit = machineMemory() + max(0, m.SwapFree)
		use.used = use.limit - first.Left
	case growth.LimitCgroup, growth.LimitHigh:
		use.limit = max(use.limit, m.CgroupUsed+first.Left)
		use.used = max(0, m.CgroupUsed-m.CgroupActive)
	}
	return use
}

// machineMemory is the RAM of the machine in bytes; 0: unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// share is the used share of the limit; 0: there is no limit.
func (u limitUse) share() float64 {
	if u.limit <= 0 {
		return 0
	}
	return float64(u.used) / float64(u.limit)
}

// fill takes over how much of its limit is used, and reports whether the limit is nearly used up from
// now on: a trace is wanted then, once until the use falls again.
func (w *watchedProcess) fill(use limitUse, nearLimit float64, isTraced bool) (begins bool) {
	w.use = use
	holds := float64(use.private) >= minHeldShare*float64(use.limit)
	switch share := use.share(); {
	case nearLimit == 0:
	case w.isFull && share < nearLimit-fullMargin:
		w.isFull = false
		w.wantsTrace = w.wantsTrace && w.mattersNow()
	case !w.isFull && share >= nearLimit && holds:
		w.isFull = true
		if !isTraced {
			w.wantsTrace, w.wasRefused = true, false
		}
		return true
	}
	return false
}

// mayBeFull reports whether the process has grown so much since its limits were read that they may
// be nearly used up.
func (w *watchedProcess) mayBeFull(nearLimit float64) bool {
	if nearLimit == 0 || w.isFull {
		return false
	}
	now := w.use
	now.used += max(0, privateOf(w.last)-now.private)
	return now.used > w.use.used && now.share() >= nearLimit
}

// privateOf is the anonymous and shared memory of a sample in bytes; 0: unknown.
func privateOf(s growth.Sample) int64 {
	if s.Anonymous == growth.Unknown || s.Shared == growth.Unknown {
		return 0
	}
	return s.Anonymous + s.Shared
}
