// Package keeper is the domain of who keeps memory: the path from a variable to the objects that it
// keeps. It does no I/O.
package keeper

import (
	"encoding/json"
	"time"
)

// A Search is the result of searching for the keepers of one suspect's objects.
type Search struct {
	PID int
	// Stack is the ID of the stack that allocated the objects; 0: they are the objects of Type.
	Stack uint64
	// Type of the objects; empty: memory without one.
	Type string
	// Samples is the number of objects that were looked for; those that were freed meanwhile do not
	// count.
	Samples int
	// Paths found, the one that explains most samples first.
	Paths []Path
	// Reason for which no path is named, or none of part of the samples; empty: Paths and Garbage
	// explain all.
	Reason Reason
	// Garbage is the number of samples that nothing outside of a cycle of objects refers to, and
	// Waits has its wait.
	Garbage int
	Waits   Wait
	// Collections is how often the oldest generation of the garbage collector has run within
	// CollectionsTime; -1: not known. In the result of objects.Heap, it is since the interpreter
	// started, and CollectionsTime is 0.
	Collections     int
	CollectionsTime time.Duration
	// Elapsed since the start of the trace at which the entries of containers were read. In the
	// result of objects.Heap, it is CLOCK_MONOTONIC.
	Elapsed time.Duration
	// TracedSince is the moment, as Elapsed, since which the program of the process is traced. It
	// differs where the process executes another one.
	TracedSince time.Duration
	// Took is the CPU time up to this result: suspects are searched for together, so that the last
	// one has the time of all.
	Took time.Duration
	// IsEarlier is set if the last search of the trace was not made, or its time was used up.
	IsEarlier bool
	// Count is how many more objects of Type there were than at the first census; 0: not known.
	Count float64
	// Ages of the samples. Sweep is whether anything in the process refers to them, and Proof the
	// agreement of two sweeps.
	Ages  Ages
	Sweep Sweep
	Proof Proof
}

// A Reason says why no path is named.
type Reason string

// Reasons.
const (
	// ReasonNone: Paths and Garbage explain each sample.
	ReasonNone Reason = ""
	// ReasonFreed: the objects were freed meanwhile.
	ReasonFreed Reason = "freed"
	// ReasonMany: each is kept by another variable, none by one that keeps enough of them.
	ReasonMany Reason = "many"
	// ReasonAllocator: the blocks of their allocator are not known.
	ReasonAllocator Reason = "allocator"
	// ReasonGarbage: they are in cycles of objects that wait for the garbage collector.
	ReasonGarbage Reason = "garbage"
	// ReasonNative: only memory of native code refers to them, which no symbol names.
	ReasonNative Reason = "native"
	// ReasonUnreferenced: nothing that was searched refers to them.
	ReasonUnreferenced Reason = "unreferenced"
	// ReasonBudget: the time for the search was used up.
	ReasonBudget Reason = "budget"
	// ReasonUnsupported: the objects of its CPython cannot be read, such as the objects of a
	// free-threaded one.
	ReasonUnsupported Reason = "unsupported"
	// ReasonChanging: the findings did not add up twice.
	ReasonChanging Reason = "changing"
	// ReasonRuntime: references in the runtime of another language have no names, and it may keep
	// the memory of native code.
	ReasonRuntime Reason = "runtime"
)

// A Path leads from a variable to the objects that it keeps.
type Path struct {
	Root Root `json:"root"`
	// Links lead from the root to the objects. The first is the object to which the variable itself
	// refers.
	Links []Link `json:"links"`
	// Samples is the number of samples that are reached through it, and Share their share of all, 0
	// to 1. A search leaves Share at 0.
	Samples int     `json:"samples"`
	Share   float64 `json:"share"`
	// Complete: each object on the way has one reference (ob_refcnt), the reference of the path:
	// nothing else keeps them.
	Complete bool `json:"complete"`
}

// minLinkGrowth is the part of the fastest growth on a path from which on the growth of a container
// explains it: a dict that got a second key beside a list with a thousand items more does not.
const minLinkGrowth = 0.01

// GrowingLink returns the index of the first container on the way that grows; -1: none is known to.
func (p *Path) GrowingLink() int {
	fastest := 0.0
	for _, l := range p.Links {
		fastest = max(fastest, l.PerMinute)
	}
	for i, l := range p.Links {
		if l.PerMinute > 0 && l.PerMinute >= minLinkGrowth*fastest {
			return i
		}
	}
	return -1
}

// A Link is one step of a path.
type Link struct {
	// How the object before refers to this one.
	How How `json:"how"`
	// Name is the name of the attribute or variable, or a key of a dict as Python writes it; absent
	// where it differs between the samples, or there is none.
	Name string `json:"name,omitempty"`
	// Type is its type with its module: "dict", "PIL.Image.Image"; absent: memory without one, of
	// TypeSize bytes.
	Type     string `json:"type,omitempty"`
	TypeSize uint64 `json:"size_bytes,omitempty"`
	// Entries of a container (list, dict, set, deque, tuple); absent of other objects.
	Entries Entries `json:"entries,omitzero"`
	// PerMinute is by how many entries it grows; absent where it does not, or that is unknown.
	PerMinute float64 `json:"entries_per_min,omitempty"`
	// Limit is how many entries it can have: deque(maxlen), lru_cache(maxsize); absent: there is no
	// limit, or it is not known.
	Limit int64 `json:"limit_entries,omitempty"`
	// GrowthS is the time between two readings of the container; absent: there were none. Steady: it
	// has not grown meanwhile. AppendOnly: it has, and has lost none of its entries.
	GrowthS    float64 `json:"growth_s,omitempty"`
	Steady     bool    `json:"steady,omitempty"`
	AppendOnly bool    `json:"append_only,omitempty"`
	// WriteOnly: the source of the program only adds to it, by the variable that leads to it.
	WriteOnly bool `json:"write_only,omitempty"`
	// Names are the keys of the containers in which the samples are, where they are few; absent:
	// there is one, Name, or there are many. Entries and PerMinute are sums then.
	Names []string `json:"names,omitempty"`
	// Readings of the containers: one, or a few of which each has some of the samples. Absent, but
	// for containers that a later trace of the process can recognise.
	Readings []Reading `json:"readings,omitempty"`
	// Repeated: there is a chain of such links, a linked list; absent: there is none.
	Repeated bool `json:"repeated,omitempty"`
}

// IsContainer reports whether a link leads to a container of CPython, by its type.
func (l *Link) IsContainer() bool {
	switch l.Type {
	case "list", "dict", "set", "collections.deque", "collections.OrderedDict",
		"collections.defaultdict":
		return true
	}
	return l.Entries >= 0
}

// Entries is a number of entries; NoContainer: the object has none, and the number is absent in
// JSON.
type Entries int64

// NoContainer is in the place of the entries of an object that is no container.
const NoContainer Entries = -1

// IsZero is true where the number is absent in JSON.
func (e Entries) IsZero() bool { return e < 0 }

// UnmarshalJSON sets Entries where the number is absent, too.
func (l *Link) UnmarshalJSON(text []byte) error {
	type plain Link
	read := plain{Entries: NoContainer}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*l = Link(read)
	return nil
}

// How an object refers to another one.
type How string

// Ways to refer to an object.
const (
	HowVariable  How = "variable"  // the root itself
	HowItem      How = "item"      // an item of a list, tuple or deque: [...]
	HowValue     How = "value"     // a value of a dict: [key]
	HowKey       How = "key"       // a key of a dict
	HowElement   How = "element"   // an element of a set
	HowAttribute How = "attribute" // of an instance: .name
	HowClosure   How = "closure"   // a cell of a function
	HowDefault   How = "default"   // a default argument of a function
	HowLocal     How = "local"     // a local variable of a frame or generator
	HowField     How = "field"     // a field of a C structure; Name is empty
)

// A RootKind is the kind of a root.
type RootKind string

// Kinds of roots.
const (
	RootGlobal    RootKind = "global"    // a module's global
	RootClass     RootKind = "class"     // an attribute of a class
	RootLocal     RootKind = "local"     // a local variable of a running function
	RootGenerator RootKind = "generator" // of a generator that is suspended
	RootCoroutine RootKind = "coroutine" // of a coroutine that is suspended
	RootClosure   RootKind = "closure"   // a variable of an enclosing function
	RootDefault   RootKind = "default"   // a default argument
	RootCache     RootKind = "lru-cache" // functools.lru_cache of a function
	RootThread    RootKind = "thread"    // a native thread's stack
	RootStatic    RootKind = "static"    // a static variable of a program or library
	// RootCycle is no variable: a cycle of C++ objects keeps itself, around a tensor of type Name.
	RootCycle RootKind = "cycle"
)

// IsCall reports whether a root is a variable of a call that is under way, or is suspended.
func (r Root) IsCall() bool {
	return r.Kind == RootLocal || r.Kind == RootGenerator || r.Kind == RootCoroutine
}

// A Root is a variable with a name, where a path begins.
type Root struct {
	Kind RootKind `json:"kind"`
	// Module of a global or a class, "__main__" of the program's; of a static variable it is the
	// file. File is the path of the source, and Line the line of a frame or the first of a function;
	// absent where they are unknown.
	Module string `json:"module,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Owner is the qualified name of the class or function, and Name the name of the variable or of
	// the symbol; absent where there is none.
	Owner string `json:"owner,omitempty"`
	Name  string `json:"name,omitempty"`
	// Offset within the symbol, or within the mapping of the file where there is none, in bytes.
	Offset uint64 `json:"offset_bytes,omitempty"`
}
