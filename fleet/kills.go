package fleet

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/oom"
)

// maxKills bounds the kills that are kept until their process is known to have ended.
const maxKills = 64

// A killLog has the kernel's latest OOM kills. It reads the log when a watched process ends.
type killLog struct {
	log   *oom.Log // nil: it cannot be read
	kills []growth.OOMKill
}

// open opens the log. In another PID namespace than the machine's its PIDs are not known.
func (l *killLog) open() {
	if HostPIDs() {
		l.log, _ = oom.OpenAtEnd() // without, an end has no cause
	}
}

// of returns the kill of a process that has just ended, and forgets it: the PID may be used again.
// nil: the kernel has not killed it.
func (l *killLog) of(pid int) *growth.OOMKill {
	if l.log == nil {
		return nil
	}
	kills, _ := l.log.Kills() // the kills before an error count
	l.kills = append(l.kills, kills...)
	l.kills = l.kills[max(0, len(l.kills)-maxKills):]
	for i := len(l.kills) - 1; i >= 0; i-- {
		if k := l.kills[i]; k.PID == pid {
			l.kills = append(l.kills[:i], l.kills[i+1:]...)
			return &k
		}
	}
	return nil
}

func (l *killLog) close() {
	if l.log != nil {
		l.log.Close()
	}
}
