package duty

import (
	"math"
	"sync"
	"time"
)

// A Task is work of allocscope itself that goes on while it traces.
type Task int

// The tasks, those first that the others wait for.
const (
	Readings       Task = iota // of /proc, counters and events, once a second and more often
	Snapshots                  // all that a snapshot takes, but for walks
	Scans                      // of the targets' pages
	OtherProcesses             // scans of members of the tree that are not traced
	Names                      // of stacks that no snapshot has asked for
	Mappings                   // reading them again, and the unwind tables of new code
	GeneratedNames             // of perf maps and jitdumps
	Liveness                   // checks of the tracked objects
	Rollups                    // smaps_rollup of all members
	ProcessTables              // of all processes of the machine
	Objects                    // censuses, searches and sweeps
	Walks                      // of malloc's heaps
	Spikes                     // snapshots that are taken for a spike alone
	Screen                     // judging and comparing for the screen
	Results                    // that are written while the trace runs
	numTasks
)

// none is the Row.In of a task with a part of its own.
const none Task = -1

// A Row says what a task may take of the limit of allocscope's own CPU time, all targets together.
type Row struct {
	Name string
	// Part of the limit that the task always has.
	Part float64
	// Most of the limit that the task may have while the others leave so much.
	Most float64
	// Advance is CPU time that the task may take at once, and again after it has taken none for
	// long.
	Advance time.Duration
	// In is the task whose part includes this one; none: it has a part of its own.
	In Task
	// Yields: while allocscope is above its limit, the task has a tenth of its part.
	Yields bool
	// Without says how the task does without CPU time, and Said where the result says so.
	Without, Said string
}

// Table has the rows of all tasks. The parts of those that are in no other one are the whole limit.
var Table = [numTasks]Row{
	Readings: {
		Name: "readings", Part: 0.25, Most: 0.25, In: none,
		Without: "the same: the others yield", Said: "`own_s`",
	},
	Snapshots: {
		Name: "snapshots", Part: 0.3, Most: 0.3, Advance: 200 * time.Millisecond, In: none,
		Without: "later, five periods at most", Said: "`left_out_snapshots`, and a line",
	},
	Scans: {
		Name: "page scans", Part: 0.2, Most: 0.5, In: Snapshots,
		Without: "sampled: 2% of the pages at least",
		Said:    "`scanned_share` of `residents[]`, and a line",
	},
	OtherProcesses: {
		Name: "other processes", Part: 0.05, Most: 0.25, Advance: 300 * time.Millisecond,
		In:      Snapshots,
		Without: "later, in turns: a snapshot has the latest reading", Said: "no",
	},
	Names: {
		Name: "names", Part: 0.05, Most: 0.25, Advance: 300 * time.Millisecond, In: none,
		Without: "later: the kernel reports the stack again", Said: "losses `unknown-stacks`",
	},
	Mappings: {
		Name: "mappings", Part: 0.05, Most: 0.25, Advance: 500 * time.Millisecond, In: none,
		Without: "later: stacks end at new code", Said: "truncated stacks, with the reason",
	},
	GeneratedNames: {
		Name: "generated names", Part: 0.025, Most: 0.25, Advance: 500 * time.Millisecond, In: none,
		Without: "later: the address is shown", Said: "the frame has no name",
	},
	Liveness: {
		Name: "liveness", Part: 0.05, Most: 0.25, In: none,
		Without: "later", Said: "`lag_s` and `undecided` stacks",
	},
	Rollups: {
		Name: "rollups", Part: 0.05, Most: 0.1, In: none,
		Without: "later, the large ones first", Said: "empty cells of `pss_bytes`",
	},
	ProcessTables: {
		Name: "process tables", Part: 0.025, Most: 0.05, In: none,
		Without: "later", Said: "`since_s` of `related[]`",
	},
	Objects: {
		Name: "objects", Part: 0.1, Most: 0.3, Advance: 2 * time.Second, In: none,
		Without: "later; a search in part", Said: "`reason` of `keepers[]`", Yields: true,
	},
	Walks: {
		Name: "heap walks", Part: 0.025, Most: 0.1, Advance: time.Second, In: none,
		Without: "not: free memory is unknown until the end", Said: "`walked` of `residents[]`",
		Yields: true,
	},
	Spikes: {
		Name: "spikes", Part: 0.05, Most: 0.1, Advance: 200 * time.Millisecond, In: none,
		Without: "not", Said: "`captured` of `spike_memory` is absent", Yields: true,
	},
	Screen: {
		Name: "screen", Part: 0.025, Most: 0.5, In: none,
		Without: "later", Said: "the time of the verdict on the screen", Yields: true,
	},
	Results: {
		Name: "results", Part: 0.0125, Most: 0.25, Advance: 200 * time.Millisecond, In: Screen,
		Without: "later, five minutes at most", Said: "`duration_s` of the latest one",
	},
}

const (
	// StartTime is the CPU time that the start may take beside the limit, however long the trace
	// is. The tasks pay for more: they have less until the limit has room for it.
	StartTime = 3 * time.Second
	// DefaultCores is the limit of allocscope's own CPU time, in cores, where the traced processes
	// use little and the user has set none.
	DefaultCores = 0.02

	// minCores is the least limit that the parts are of: processes that sleep are traced, too.
	minCores = 0.004
	// lentBelow is the part of the limit below which allocscope's use leaves time to lend.
	lentBelow = 0.8
	// yieldedPart of its part is left to a task that yields.
	yieldedPart = 0.1
)

// Advance returns the CPU time that all tasks together may take in advance, but for those that read
// memory, whose CPU time is apart.
func Advance() (sum time.Duration) {
	for task, row := range Table {
		if !Task(task).readsMemory() {
			sum += row.Advance
		}
	}
	return sum
}

// readsMemory reports whether a task reads a process's objects or malloc's heaps.
func (t Task) readsMemory() bool { return t == Objects || t == Walks }

// MemoryAdvance is Advance of the tasks that read memory.
func MemoryAdvance() time.Duration { return Table[Objects].Advance + Table[Walks].Advance }

// ExtraAdvance is added to each Row.Advance. Tests make it long.
var ExtraAdvance time.Duration

// A Use is the limit of allocscope's own CPU time and how much of it is used, in cores.
type Use struct {
	Limit float64 // 0: there is none
	Used  float64 // without StartTime, and without the time in advance
}

// Share returns the share of a core that a task may take. Without a limit it is the most that it
// may have of DefaultCores.
func (u Use) Share(t Task) float64 {
	row, cores := Table[t], max(u.Limit, minCores)
	switch {
	case u.Limit <= 0:
		return row.Most * DefaultCores
	case u.Used < lentBelow*cores:
		return row.Most * cores
	case u.Used > cores && row.Yields:
		return yieldedPart * row.Part * cores
	}
	return row.Part * cores
}

// A Budget divides the limit of allocscope's own CPU time among its tasks. All targets share the
// row of a task. It may be used by several goroutines.
type Budget struct {
	mu       sync.Mutex
	use      Use
	limiters [numTasks]Limiter
}

// NewBudget returns a budget of so many cores; 0: there is no limit.
func NewBudget(cores float64) *Budget {
	b := &Budget{use: Use{Limit: cores}}
	for t := range b.limiters {
		b.limiters[t].Burst = Table[t].Advance + ExtraAdvance
	}
	return b
}

// Set sets the limit, and how much of it is used, as measured.
func (b *Budget) Set(u Use) {
	if math.IsNaN(u.Limit) || math.IsNaN(u.Used) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use = u
}

// Account returns the account of a task, which is the same for all callers.
func (b *Budget) Account(t Task) Account { return Account{b, t} }

// An Account is a Limiter of one task that takes its share from a Budget. The zero value has no
// limit. It may be used by several goroutines.
type Account struct {
	budget *Budget
	task   Task
}

// with calls do with the Limiter and its present share. It does not without a limit.
func (a Account) with(do func(*Limiter)) {
	if a.budget == nil {
		return
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	l := &a.budget.limiters[a.task]
	l.Share = a.budget.use.Share(a.task)
	do(l)
}

// Share returns the share of a core that accrues now; +Inf without a limit.
func (a Account) Share() float64 {
	share := math.Inf(1)
	a.with(func(l *Limiter) { share = l.Share })
	return share
}

// Accrue is Limiter.Accrue; a second without a limit.
func (a Account) Accrue(now time.Time) time.Duration {
	accrued := time.Second
	a.with(func(l *Limiter) { accrued = l.Accrue(now) })
	return accrued
}

// Credit is Limiter.Credit; an hour without a limit.
func (a Account) Credit() time.Duration {
	credit := time.Hour
	a.with(func(l *Limiter) { credit = l.Credit() })
	return credit
}

// Spend is Limiter.Spend.
func (a Account) Spend(cost time.Duration) { a.with(func(l *Limiter) { l.Spend(cost) }) }

// Rest is Limiter.Rest; 0 without a limit.
func (a Account) Rest(now time.Time) (rest time.Duration) {
	a.with(func(l *Limiter) { rest = l.Rest(now) })
	return rest
}

// Allowed is Limiter.Allowed; true without a limit.
func (a Account) Allowed(now time.Time) bool {
	isAllowed := true
	a.with(func(l *Limiter) { isAllowed = l.Allowed(now) })
	return isAllowed
}
