package main

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// A testCase is a program of testdata/cases, and what a trace with the defaults must say of it.
type testCase struct {
	name    string
	command []string // in the folder of testdata/cases
	about   string
	// alarm: the verdict says that memory grows. Otherwise it must not.
	alarm bool
	// rows are kinds of memory. One of them must grow most, of those of the process; of the tree
	// where tree is set.
	rows []growth.Kind
	tree bool
	// diagnoses: the largest must be one of them. A trace that does not grow may have none.
	diagnoses []string
	// named: the line that is marked NAMED is in the first suspect.
	named bool
	// bounded: allocscope's CPU time and its memory have bounds.
	bounded bool
}

// The bounds of allocscope beside a job of many processes.
const (
	maxShareOfJob = 0.03      // of the job's CPU time
	maxOwnBytes   = 400 << 20 // RSS
)

var testCases = []testCase{
	{
		name: "inherited", command: []string{"python3", "inherited.py"},
		about: "DataLoader workers copy what they inherited",
		rows:  []growth.Kind{growth.KindCOW}, tree: true,
		diagnoses: []string{"copy-on-write"},
	},
	{
		name: "arenas", command: []string{"python3", "arenas.py"},
		about:     "threads leave free memory in malloc's arenas",
		rows:      []growth.Kind{growth.KindRetained, growth.KindUnclassified},
		diagnoses: []string{"fragmentation", "undecided"},
	},
	{
		name: "buffers", command: []string{"python3", "buffers.py"},
		about:     "large buffers come and go",
		rows:      []growth.Kind{growth.KindRetained, growth.KindUnclassified, growth.KindHeap},
		diagnoses: []string{"fragmentation", "undecided"},
	},
	{
		name: "shapes", command: []string{"python3", "shapes.py"},
		about:     "oneDNN keeps what it made for 1,024 shapes",
		rows:      []growth.Kind{growth.KindHeap, growth.KindMmap, growth.KindJIT},
		diagnoses: []string{"heap-leak", "mmap-growth", "undecided"},
	},
	{
		name: "recompiles", command: []string{"python3", "recompiles.py"},
		about: "Dynamo keeps what it compiled for each shape",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindPython},
		diagnoses: []string{"heap-leak", "python-objects"}, named: true,
	},
	{
		name: "collectives", command: []string{"python3", "collectives.py"},
		about: "the results of gloo's collectives are kept",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
	},
	{
		name: "groups", command: []string{"python3", "groups.py"},
		about: "process groups are made again and again",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindStack},
		diagnoses: []string{"heap-leak", "mmap-growth"}, named: true,
	},
	{
		name: "mapped", command: []string{"python3", "mapped.py"},
		about:     "a file is read through numpy.memmap",
		rows:      []growth.Kind{growth.KindFile},
		diagnoses: []string{"page-cache"},
	},
	{
		name: "outputs", command: []string{"python3", "outputs.py"},
		about: "losses are kept with their graphs",
		alarm: true, rows: []growth.Kind{growth.KindHeap},
		diagnoses: []string{"heap-leak"}, named: true,
	},
	{
		name: "ranks", command: []string{"python3", "ranks.py", "8"},
		about: "8 ranks with 4 forked workers each",
		alarm: true, rows: []growth.Kind{growth.KindHeap, growth.KindPython}, tree: true,
		diagnoses: []string{"heap-leak", "python-objects"}, named: true, bounded: true,
	},
}

// alarms are the verdicts that say that memory grows.
var alarms = []verdict.Class{verdict.ClassLeak, verdict.ClassSuspected, verdict.ClassGrowing}
