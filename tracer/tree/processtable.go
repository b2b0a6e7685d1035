package tree

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

// A ProcessTable is the memory of all processes of the machine at one moment, by PID.
type ProcessTable map[int]processMemory

type processMemory struct {
	start        time.Duration // distinguishes processes that had the same PID
	rss, private int64         // bytes, private without files and shared memory
	parent       int
}

// ReadProcessTable reads two small files of each process, and omits processes that cannot be read.
// It is an error if /proc cannot be listed.
func ReadProcessTable() (ProcessTable, error) {
	pids, err := listPIDs()
	if err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}

	table := make(ProcessTable, len(pids))
	for _, pid := range pids {
		stat, err := process.ReadStat(pid)
		if err != nil {
			continue
		}
		if rss, shared, ok := readResident(stat.TID); ok {
			table[pid] = processMemory{stat.Start, rss, max(0, rss-shared), stat.Parent}
		}
	}
	return table, nil
}

// readResident returns resident memory, and the shared part of it, of the statm of a thread, in
// bytes. The kernel reads it from counters, without walking page tables.
func readResident(tid int) (resident, shared int64, ok bool) {
	raw, err := process.ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "statm"))
	if err != nil {
		return 0, 0, false
	}
	fields := strings.Fields(string(raw)) // size, resident, shared, ..., in pages
	if len(fields) < 3 {
		return 0, 0, false
	}

	resident, err1 := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	page := int64(process.PageSize)
	return resident * page, shared * page, err1 == nil && err2 == nil
}

// isBelow reports whether a process descends from another one, whose start is known.
func (t ProcessTable) isBelow(pid, ancestor int, start time.Duration) bool {
	for n := 0; pid > 1 && n < maxAncestors; n++ {
		if pid == ancestor && t[pid].start == start {
			return true
		}
		pid = t[pid].parent
	}
	return false
}

// A Census of the machine keeps the tables of a trace, to find the processes that grow. The zero
// value is empty.
type Census struct {
	Limit    duty.Account // of reading tables
	tables   []timedTable
	thinning growth.Thinning
	due      time.Duration
}

type timedTable struct {
	ProcessTable
	elapsed time.Duration
}

const (
	// tablePeriod is the least time between two tables.
	tablePeriod = 20 * time.Second
	// maxTables bounds the tables. Of more, every other one is dropped.
	maxTables = 32
)

// Update reads a table where one is due, and calls beside, whose cost counts too. elapsed is the
// time since tracing started.
func (c *Census) Update(elapsed time.Duration, beside func()) {
	if len(c.tables) > 0 && elapsed < c.due {
		return
	}

	var table ProcessTable
	var err error
	cost := process.MeasureCPUTime(func() {
		table, err = ReadProcessTable()
		beside()
	})
	c.due = elapsed + max(tablePeriod, time.Duration(float64(cost)/c.Limit.Share()))
	if err == nil {
		c.add(timedTable{table, elapsed})
	}
}

func (c *Census) add(t timedTable) {
	if c.thinning.DropsLast() && len(c.tables) > 1 {
		c.tables = c.tables[:len(c.tables)-1]
	}
	c.tables = append(c.tables, t)
	if c.thinning.Take() && len(c.tables) > maxTables {
		c.thinning.Halve()
		c.tables = growth.EveryOther(c.tables)
	}
}

// TopGrowers returns up to limit processes that have grown most until a later table, the largest
// growth first, of those that matter. allocscope and its children never do.
func (c *Census) TopGrowers(
	later ProcessTable, now time.Duration, matters func(pid int) bool, limit int,
) []growth.OtherProcess {
	var grown []growth.OtherProcess
	for pid := range later {
		o := c.growthOf(pid, timedTable{later, now})
		if (o.Growth > 0 || o.Rate > 0) && matters(pid) && !isOwn(pid) {
			grown = append(grown, o)
		}
	}

	slices.SortFunc(grown, func(a, b growth.OtherProcess) int {
		return cmp.Or(cmp.Compare(b.Growth, a.Growth), cmp.Compare(a.PID, b.PID))
	})
	grown = grown[:min(len(grown), limit)]
	for i := range grown {
		grown[i].Command = commandOf(grown[i].PID)
	}
	return grown
}

// isOwn reports whether a process is this one, or a child with the same program, or a child of that.
func isOwn(pid int) bool {
	const generations = 3 // a search reads in the child of a child
	own, _ := os.Stat("/proc/self/exe")
	for range generations {
		program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !os.SameFile(program, own) {
			return false
		}
		if pid == os.Getpid() {
			return true
		}
		stat, err := process.ReadStat(pid)
		if err != nil {
			return false
		}
		pid = stat.Parent
	}
	return false
}

// growthOf is how a process has grown since the first table that has it.
func (c *Census) growthOf(pid int, last timedTable) growth.OtherProcess {
	var own []timedTable
	for _, t := range c.tables {
		if t.ProcessTable[pid].start == last.ProcessTable[pid].start {
			own = append(own, t)
		}
	}
	o := growth.OtherProcess{PID: pid, Since: last.elapsed.Seconds()}
	if len(own) == 0 {
		return o
	}

	first := own[0]
	o.Since = first.elapsed.Seconds()
	o.Growth = last.ProcessTable[pid].rss - first.ProcessTable[pid].rss
	o.Rate = lastingRate(pid, append(own, last))
	return o
}

// minLastingTime is the shortest time in which growth can be seen to last, and minLastShare the least
// growth in the last third of it, as a share of the growth in the second one.
const (
	minLastingTime = 60 * time.Second
	minLastShare   = 0.5
)

// lastingRate is the rate of growth, in bytes per second, over the last two thirds of the tables; 0
// where a process has not grown in each third.
func lastingRate(pid int, own []timedTable) float64 {
	last := len(own) - 1
	if last < 3 || own[last].elapsed-own[0].elapsed < minLastingTime {
		return 0
	}

	grown := func(from, to int) float64 {
		return float64(own[to].ProcessTable[pid].private - own[from].ProcessTable[pid].private)
	}
	first, second := last/3, last-last/3
	middle, final := grown(first, second)/float64(second-first), grown(second, last)/float64(last-second)
	if grown(0, first) <= 0 || middle <= 0 || final < minLastShare*middle {
		return 0
	}
	return grown(first, last) / (own[last].elapsed - own[first].elapsed).Seconds()
}

// commandOf returns a short name of a process's program; a question mark if it has exited.
func commandOf(pid int) string {
	p, err := process.Open(pid)
	if err != nil {
		return "?"
	}
	defer p.Close()
	return p.Command()
}
