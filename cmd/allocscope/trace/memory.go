package trace

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the memory of Go's heap, in bytes. Above the limit Go collects garbage more often; it
// refuses nothing.
const (
	minMemoryLimit = 256 << 20
	maxMemoryLimit = 1 << 30

	// memoryLimitPart is the part of the machine's memory that is the highest limit, in between.
	memoryLimitPart = 20
)

// memoryLimit returns the limit on a machine with so much memory, of a heap of which so much is
// alive: garbage may take half as much, so that collecting it stays cheap.
func memoryLimit(machineBytes, liveBytes int64) int64 {
	highest := min(max(machineBytes/memoryLimitPart, minMemoryLimit), maxMemoryLimit)
	return min(max(liveBytes+liveBytes/2, minMemoryLimit), highest)
}

// limitMemory lets garbage wait for its collection only up to a limit, or to a lower one that the
// user has set. It is called again as the heap grows.
func limitMemory(userLimit int64) {
	var machine unix.Sysinfo_t
	_ = unix.Sysinfo(&machine) // without it the limit is the least
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)

	limit := memoryLimit(int64(machine.Totalram)*int64(machine.Unit), int64(live[0].Value.Uint64()))
	debug.SetMemoryLimit(min(limit, userLimit))
}

// userMemoryLimit returns the limit in GOMEMLIMIT.
func userMemoryLimit() int64 { return debug.SetMemoryLimit(-1) }

// VolunteerForOOM makes the OOM killer end this process before any other. It would choose the
// largest, which is the trainer, also where this process itself has grown. Any process may raise
// its own score.
func VolunteerForOOM() error {
	const most = "1000" // OOM_SCORE_ADJ_MAX
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(most), 0); err != nil {
		return fmt.Errorf("have the OOM killer spare the trainer: %w", err)
	}
	return nil
}

// limitHeapAtStartup halves the garbage that Go lets accumulate while a trace starts, when most of
// it arises: beside a trainer memory is more expensive than a little CPU time. It ends by itself,
// or by the function that it returns.
func limitHeapAtStartup() (end func()) {
	const startup = 15 * time.Second

	before := debug.SetGCPercent(50)
	restore := func() { debug.SetGCPercent(before) }
	timer := time.AfterFunc(startup, restore)
	return func() {
		if timer.Stop() {
			restore()
		}
	}
}
