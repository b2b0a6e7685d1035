// Package jit names code that a runtime has generated, by the files in which the runtime lists it:
// perf maps (/tmp/perf-PID.map) and jitdump (jit-PID.dump).
//
// The files belong to the traced process, and others may write to its /tmp: all of it is hostile
// input. A file counts only if the process's user or root has written it since the process began,
// and its size, lines and names are bounded.
package jit

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds for a process. V8 lists 2,000 functions at its start, a JVM some 10,000 in an hour.
const (
	maxFunctions  = 1 << 18
	maxTextBytes  = 32 << 20 // of all names
	maxFileBytes  = 1 << 30  // read of all files
	maxNameBytes  = 512
	maxDumps      = 8
	maxCandidates = 256 // functions at one address that are compared
)

const (
	// checkPause is the least time between two looks at the files.
	checkPause = time.Second
)

// A Function is generated code at an address.
type Function struct {
	Name string
	// File of the source, and the first line of the function in it; empty and 0 where the runtime
	// does not say.
	File      string
	StartLine int
	// IsTrampoline: it calls a Python function, whose own frame is read elsewhere.
	IsTrampoline bool
}

// Names are the functions that one process has listed. It is used by one goroutine at a time.
type Names struct {
	process *process.Process
	perfMap *process.PerfMapFile // nil: the process was gone
	listing listing
	dumps   map[process.FileID]*dump // at most maxDumps

	functions []function // by start, in the order in which they were read
	ends      []uint64   // the greatest end among the functions up to each
	isSorted  bool
	text      int // bytes of names
	read      int64

	checks int
	next   time.Time
	limit  duty.Account // of reading them
}

// A function is one entry of a file.
type function struct {
	start, end uint64
	name       string
	source     source // by a jitdump
	// check is the look at the files that found it, and since the look before which it was not
	// there; 0: nothing is known, as the file was new.
	check, since int
}

// A source is where in the source a function begins.
type source struct {
	file string
	line int
}

// New returns the names of a process, without any yet. limit is of the CPU time of reading them.
func New(p *process.Process, limit duty.Account) *Names {
	perfMap, _ := process.FindPerfMap(p)
	return &Names{
		process: p,
		perfMap: perfMap,
		dumps:   make(map[process.FileID]*dump),
		limit:   limit,
	}
}

// Check reads the functions that the runtime has listed since the last call, once a second at most.
// It returns how often it has looked. maps are the executable mappings.
func (n *Names) Check(maps []process.Mapping) int {
	if now := time.Now(); !now.Before(n.next) {
		n.look(maps, now)
	}
	return n.checks
}

// CheckSince looks at the files for a frame in a mapping, unless it has since the check at which the
// stack was reported: the runtime lists a function before it is called. It reports whether it has.
func (n *Names) CheckSince(check int, m process.Mapping, maps []process.Mapping) bool {
	return n.checks <= check && isGenerated(m) && n.look(maps, time.Now())
}

// look reads the files, if there may be some and CPU time is left.
func (n *Names) look(maps []process.Mapping, now time.Time) bool {
	if !slices.ContainsFunc(maps, isGenerated) || !n.limit.Allowed(now) {
		return false
	}

	n.next = now.Add(checkPause)
	n.limit.Spend(process.MeasureCPUTime(func() {
		n.checks++
		n.checkPerfMap()
		for _, m := range maps {
			if isDump(m) {
				n.checkDump(m)
			}
		}
	}))
	return true
}

// isGenerated reports whether a mapping may have generated code. Some runtimes map a file in memory
// twice, to write code at one place and execute it at the other.
func isGenerated(m process.Mapping) bool {
	switch m.Path {
	case "[vdso]", "[vsyscall]", "[uprobes]":
		return false
	}
	return !m.IsFile() || strings.HasPrefix(m.Path, "/memfd:") || isDump(m)
}

// isFull reports whether no more may be read.
func (n *Names) isFull() bool {
	return len(n.functions) >= maxFunctions || n.text >= maxTextBytes || n.read >= maxFileBytes
}

// add keeps a function.
func (n *Names) add(f function) {
	if f.end <= f.start || f.name == "" || n.isFull() {
		return
	}

	n.functions = append(n.functions, f)
	n.isSorted = false
	n.text += len(f.name)
}

// sort brings the functions into order. Those that a file lists again are kept once.
func (n *Names) sort() {
	if n.isSorted {
		return
	}

	n.isSorted = true
	slices.SortStableFunc(n.functions, func(a, b function) int {
		return cmp.Compare(a.start, b.start)
	})

	n.functions = slices.CompactFunc(n.functions, func(a, b function) bool {
		return a.start == b.start && a.end == b.end && a.name == b.name
	})

	n.ends = n.ends[:0]
	var end uint64
	for _, f := range n.functions {
		end = max(end, f.end)
		n.ends = append(n.ends, end)
	}
}

// Find returns the function at an address at the time of a check and until the next one. ok is false
// if the address had no function then, or may have had two: memory is used again for other code.
func (n *Names) Find(address uint64, check int) (found Function, ok bool) {
	n.sort()

	var known, later *function
	i := sort.Search(len(n.functions),
		func(i int) bool { return n.functions[i].start > address })

	for seen := 0; i > 0 && n.ends[i-1] > address; seen++ {
		i--
		f := &n.functions[i]
		switch {
		case seen == maxCandidates:
			return Function{}, false
		case f.end <= address || f.since > check+1:
		case f.check <= check:
			if known == nil || f.check > known.check {
				known = f
			}
		case later != nil && later.name != f.name:
			return Function{}, false
		default:
			later = f
		}
	}

	switch {
	case known == nil && later == nil, known != nil && later != nil && known.name != later.name:
		return Function{}, false
	case known == nil:
		known = later
	}
	described := parseName(known.name)
	if described.File == "" {
		described.File, described.StartLine = known.source.file, known.source.line
	}
	return described, true
}
