package record

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/oom"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	maxOOMKills = 16
	// The kernel writes its log just after it has chosen a process: the end waits so long for it.
	oomLogTime, oomLogPeriod = time.Second, 10 * time.Millisecond
)

// An oomWatch reads from the kernel's log which processes of the tree the kernel has killed. Without
// the right to read it, it finds none.
type oomWatch struct {
	log   *oom.Log // nil: it cannot be read
	kills []growth.OOMKill
}

// newOOMWatch opens the log. It has PIDs of the initial namespace: in another one they are not known.
func newOOMWatch() (w oomWatch) {
	if _, inode, err := kernel.PIDNamespace(); err == nil && inode == 0 {
		w.log, _ = oom.OpenAtEnd()
	}
	return w
}

// read reads the kills since the last call, of the processes of a tree.
func (w *oomWatch) read(h *growth.History) {
	if w.log == nil {
		return
	}
	kills, _ := w.log.Kills() // the kills before an error count
	for _, k := range kills {
		isOfTree := slices.ContainsFunc(h.Processes, func(p *growth.ProcessHistory) bool {
			return p.PID == k.PID
		})
		if isOfTree && len(w.kills) < maxOOMKills {
			w.kills = append(w.kills, k)
		}
	}
}

// has reports whether the kernel has killed a process.
func (w *oomWatch) has(pid int) bool {
	return slices.ContainsFunc(w.kills, func(k growth.OOMKill) bool { return k.PID == pid })
}

// await reads the log until it has the kill of a process, a second at most.
func (w *oomWatch) await(pid int, h *growth.History) {
	for end := time.Now().Add(oomLogTime); w.log != nil && !w.has(pid); time.Sleep(oomLogPeriod) {
		if w.read(h); time.Now().After(end) {
			return
		}
	}
}

func (w *oomWatch) close() {
	if w.log != nil {
		w.log.Close()
		w.log = nil
	}
}

// summaries are the kills in the form of the summary of a trace whose clock shows a time now.
func (w *oomWatch) summaries(elapsed time.Duration) (kills []summary.OOMKill) {
	began := process.Monotonic() - elapsed
	for _, k := range w.kills {
		kills = append(kills, summary.OOMKillOf(k, began))
	}
	return kills
}
