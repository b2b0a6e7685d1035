package tree

import (
	"fmt"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// Arrivals finds the processes that are new on the machine. It reads one small file of each new
// process, and nothing of the others but now and then. It is not safe for concurrent use.
type Arrivals struct {
	settle time.Duration
	known  map[int]arrivedProcess // by PID
	scans  int
}

// An arrivedProcess has been reported; its image is zero if it is a kernel thread or a zombie.
type arrivedProcess struct {
	start int64 // as process.Stat.StartTicks
	image process.Image
}

// NewArrivals returns Arrivals that report a process when it is older than settle: until then most
// commands of scripts have ended, and the others have executed their program.
func NewArrivals(settle time.Duration) *Arrivals {
	return &Arrivals{settle: settle, known: make(map[int]arrivedProcess)}
}

// An Arrival is a new process, or a known one that executes another program now.
type Arrival struct {
	PID int
	process.Stat
}

// Memory returns the RSS of the process in bytes, and its part that is no file and not shared memory;
// growth.Unknown: it is gone.
func (a Arrival) Memory() (rss, private int64) {
	resident, shared, ok := readResident(a.TID)
	if !ok {
		return growth.Unknown, growth.Unknown
	}

	return resident, resident - shared
}

// scansPerRecheck is how often known processes are read again: the PID may have been used again, and
// a shell may have executed the trainer.
const scansPerRecheck = 12

// Scan returns the processes that have come since the scan before, without kernel threads and
// zombies. It is an error if /proc cannot be listed.
func (a *Arrivals) Scan() ([]Arrival, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, fmt.Errorf("find new processes: %w", err)
	}

	rechecks := a.scans%scansPerRecheck == 0
	a.scans++

	var found []Arrival
	known := make(map[int]arrivedProcess, len(pids))
	for _, pid := range pids {
		before, isKnown := a.known[pid]
		if isKnown && !rechecks {
			known[pid] = before
			continue
		}

		stat, err := process.ReadStat(pid)
		if err != nil || stat.Age() < a.settle {
			continue
		}
		known[pid] = arrivedProcess{stat.StartTicks, stat.Image}
		if !stat.Image.IsZero() && known[pid] != before {
			found = append(found, Arrival{pid, stat})
		}
	}

	a.known = known
	return found, nil
}
