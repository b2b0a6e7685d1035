package main

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A testCase is a program of testdata/cases, and the result that a trace with the defaults must
// have.
type testCase struct {
	name   string
	source string // in testdata/cases, in Python
	about  string
	// preload is a library that is loaded before all others.
	preload string
	// alarm: the verdict says that memory grows. Otherwise it must not.
	alarm bool
	// rows are kinds of memory of the process; of the tree where tree is set. With an alarm, one of
	// them must grow most. Otherwise they must hold 16 MiB in all, since memory that has stopped
	// growing does not grow from the baseline on.
	rows []growth.Kind
	tree bool
	// advice that must be given; empty: none must.
	advice advice.Cause
	// diagnoses: the largest must be one of them. A trace that does not grow may have none.
	diagnoses []string
	// named: the line that is marked NAMED is in the first suspect.
	named bool
	// rate is how much that line keeps, in bytes a minute; 0: it is not checked.
	rate float64
}

// The bounds of allocscope.
const (
	maxSlowdown   = 0.03      // of the job, by allocscope's own figure
	maxCores      = 0.02      // that allocscope may use beside any job
	maxShareOfJob = 0.03      // of the job's CPU time, that it may use where that is more
	maxOwnBytes   = 400 << 20 // its RSS
	maxRateError  = 0.2       // relative
	minRowBytes   = 16 << 20  // that the rows hold without an alarm
)

var testCases = []testCase{
	{
		name: "inherited", source: "inherited.py",
		about: "DataLoader workers copy what they inherited",
		rows:  []growth.Kind{growth.KindCOW}, tree: true, advice: advice.AboutCopies,
		diagnoses: []string{"copy-on-write"},
	},
	{
		name: "arenas", source: "arenas.py",
		about:     "threads leave free memory in malloc's arenas",
		rows:      []growth.Kind{growth.KindRetained, growth.KindUnclassified},
		advice:    advice.AboutRetained,
		diagnoses: []string{"fragmentation", "undecided"},
	},
	{
		name: "buffers", source: "buffers.py",
		about:     "large buffers come and go",
		rows:      []growth.Kind{growth.KindRetained, growth.KindUnclassified, growth.KindHeap},
		diagnoses: []string{"fragmentation", "undecided"},
	},
	{
		name: "shapes", source: "shapes.py",
		about:     "oneDNN keeps what it made for 1,024 shapes",
		rows:      []growth.Kind{growth.KindHeap, growth.KindMmap, growth.KindJIT},
		diagnoses: []string{"heap-leak", "mmap-growth", "undecided"},
	},
	{
		name: "recompiles", source: "recompiles.py",
		about: "Dynamo keeps what it compiled for each shape",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindPython},
		diagnoses: []string{"heap-leak", "python-objects"}, named: true,
	},
	{
		name: "collectives", source: "collectives.py",
		about: "the results of gloo's collectives are kept",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
	},
	{
		name: "groups", source: "groups.py",
		about: "process groups are made repeatedly",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindStack},
		diagnoses: []string{"heap-leak", "mmap-growth"}, named: true,
	},
	{
		name: "mapped", source: "mapped.py",
		about:     "a file is read through numpy.memmap",
		rows:      []growth.Kind{growth.KindFile},
		diagnoses: []string{"page-cache"},
	},
	{
		name: "outputs", source: "outputs.py",
		about: "losses are kept with their graphs",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
	},
	{
		name: "cached", source: "cached.py",
		about:     "a cache fills up to its limit of entries",
		rows:      []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak", "undecided"},
	},
	{
		name: "ahead", source: "ahead.py",
		about: "a decoder runs ahead of its consumer",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
	},
	{
		name: "regions", source: "regions.py",
		about: "mapped regions are registered and kept",
		alarm: true, rows: []growth.Kind{growth.KindMmap},
		diagnoses: []string{"mmap-growth"}, named: true,
		rate: 8 * (256 << 10) * 60, // regions, their size
	},
	{
		name: "shared", source: "shared.py",
		about: "tensors in shared memory are kept",
		alarm: true, rows: []growth.Kind{growth.KindShmem},
		diagnoses: []string{"shared-memory"}, named: true,
	},
	{
		name: "specs", source: "specs.py",
		about: "small objects of Python are kept",
		alarm: true, rows: []growth.Kind{growth.KindPython},
		diagnoses: []string{"python-objects"}, named: true,
	},
	{
		name: "waiting", source: "waiting.py",
		about: "a trainer that waits for its input",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
		rate: 8 * 64 * 512 * 4 * 60, // steps, elements, their size
	},
	{
		name: "pictures", source: "pictures.py",
		about: "thumbnails are kept",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
		rate: 15 * 128 * 128 * 4 * 60, // pictures, pixels, their size in Pillow
	},
	{
		name: "jemalloc", source: "pictures.py", preload: "libjemalloc.so.2",
		about: "the same with jemalloc",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
		rate: 15 * 128 * 128 * 4 * 60,
	},
	{
		name: "ranks", source: "ranks.py",
		about: "8 ranks with 4 forked workers each",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindPython}, tree: true,
		diagnoses: []string{"heap-leak", "python-objects"}, named: true,
	},
}

// alarms are the verdicts that say that memory grows.
var alarms = []verdict.Class{verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing}
