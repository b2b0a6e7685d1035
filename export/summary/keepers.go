package summary

import (
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/explain"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
)

// A Keeper is the result of searching for who keeps the objects of a stack or of a type.
type Keeper struct {
	PID int `json:"pid"`
	// StackID is the stack that allocated the objects, as in Suspect.StackIDs; absent: they are the
	// objects of Type.
	StackID string `json:"stack_id,omitempty"`
	// Type of the objects with its module; absent: memory without one.
	Type string `json:"type,omitempty"`
	// Samples is the number of objects that were searched for and are still alive.
	Samples int `json:"samples"`
	// Paths from a variable to the objects, those that explain most samples first.
	Paths []KeeperPath `json:"paths"`
	// Reason for which no path is named, or none of a part of the samples; absent: Paths and Garbage
	// explain all.
	Reason keeper.Reason `json:"reason,omitempty"`
	// Garbage is the number of samples to which nothing outside of a cycle of objects refers.
	Garbage int `json:"garbage"`
	// Collections is how often the oldest generation of the garbage collector has run within
	// CollectionsS; absent where that is unknown.
	Collections  *int    `json:"collections,omitempty"`
	CollectionsS float64 `json:"collections_s,omitempty"`
	// AtS is when the entries of containers were read.
	AtS float64 `json:"at_s"`
	// OwnS is the CPU time of the search up to this result. Suspects are searched for together.
	OwnS float64 `json:"own_s"`
	// Earlier: the search at the end was not made, or its time was used up; absent: this is it.
	Earlier bool `json:"earlier,omitempty"`
}

// A KeeperPath leads from a variable to the objects that it keeps.
type KeeperPath struct {
	// Text is the path as code, in one line.
	Text string     `json:"text"`
	Root KeeperRoot `json:"root"`
	// Links lead from the root to the objects. The first is the object to which the variable itself
	// refers.
	Links []KeeperLink `json:"links"`
	// Samples that are reached through it, and their share of all, 0 to 1.
	Samples int     `json:"samples"`
	Share   float64 `json:"share"`
	// Complete: no object on the way has a reference besides the one of the path.
	Complete bool `json:"complete"`
}

// A KeeperRoot is a variable with a name, where a path begins.
type KeeperRoot struct {
	Kind keeper.RootKind `json:"kind"`
	// Module of a global or a class; of a static variable it is the file. File is the path of the
	// source, and Line the line of a frame or the first of a function; absent where they are
	// unknown.
	Module string `json:"module,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Owner is the qualified name of the class or function, and Name the name of the variable or of
	// the symbol; absent where there is none.
	Owner string `json:"owner,omitempty"`
	Name  string `json:"name,omitempty"`
	// OffsetBytes within the symbol, or within the mapping of the file where there is none.
	OffsetBytes uint64 `json:"offset_bytes,omitempty"`
}

// A KeeperLink is one step of a path.
type KeeperLink struct {
	// How the object before refers to this one.
	How keeper.How `json:"how"`
	// Name is the name of the attribute or variable, or a key of a dict as Python writes it; absent
	// where it differs between the samples, or there is none.
	Name string `json:"name,omitempty"`
	// Type is its type with its module; absent: memory without one, of SizeBytes.
	Type      string `json:"type,omitempty"`
	SizeBytes uint64 `json:"size_bytes,omitempty"`
	// Entries of a container; absent of other objects.
	Entries *int64 `json:"entries,omitempty"`
	// EntriesPerMin is by how many it grows; absent where it does not, or that is unknown.
	EntriesPerMin float64 `json:"entries_per_min,omitempty"`
	// Repeated: there is a chain of such links; absent: there is none.
	Repeated bool `json:"repeated,omitempty"`
}

// Bounds on the process's own names in the file.
const (
	maxKeyChars    = 40 // of a variable, an attribute and the key of a dict
	maxKeeperPaths = 4
	maxLinks       = 40
)

// KeepersOf converts searches.
func KeepersOf(searches []keeper.Search) []Keeper {
	var keepers []Keeper
	for _, s := range searches {
		k := Keeper{
			PID: s.PID, StackID: stackID(s.Stack), Type: units.Name(s.Type), Samples: s.Samples,
			Paths: []KeeperPath{}, Reason: s.Reason, Garbage: s.Garbage,
			AtS: Seconds(s.Elapsed), OwnS: Seconds(s.Took), Earlier: s.IsEarlier,
		}
		if s.Collections >= 0 {
			k.Collections, k.CollectionsS = &s.Collections, Seconds(s.CollectionsTime)
		}
		for _, p := range s.Paths[:min(maxKeeperPaths, len(s.Paths))] {
			path := keeperPathOf(p)
			if s.Samples > 0 {
				path.Share = min(1, float64(p.Samples)/float64(s.Samples))
			}
			k.Paths = append(k.Paths, path)
		}
		keepers = append(keepers, k)
	}
	return keepers
}

func keeperPathOf(p keeper.Path) KeeperPath {
	out := KeeperPath{
		Root: KeeperRoot{
			Kind: p.Root.Kind, Module: units.Name(p.Root.Module), File: units.Name(p.Root.File),
			Line: p.Root.Line, Owner: units.Name(p.Root.Owner), Name: key(p.Root.Name),
			OffsetBytes: p.Root.Offset,
		},
		Links: []KeeperLink{}, Samples: p.Samples, Complete: p.Complete,
	}
	if p.Root.Kind == keeper.RootStatic {
		out.Root.Name = units.Name(p.Root.Name)
	}
	for _, l := range p.Links[:min(maxLinks, len(p.Links))] {
		link := KeeperLink{
			How: l.How, Name: key(l.Name), Type: units.Name(l.Type), SizeBytes: l.TypeSize,
			EntriesPerMin: max(0, l.PerMinute), Repeated: l.Repeated,
		}
		if l.Entries >= 0 {
			link.Entries = &l.Entries
		}
		out.Links = append(out.Links, link)
	}
	out.Text = explain.KeeperPath(out.Path())
	return out
}

// key makes the name of a variable or an attribute, or the key of a dict, fit for people.
func key(name string) string {
	name = growth.Printable(name)
	if utf8.RuneCountInString(name) <= maxKeyChars {
		return name
	}
	return string([]rune(name)[:maxKeyChars-1]) + "…"
}

// Path converts a path back.
func (p *KeeperPath) Path() keeper.Path {
	out := keeper.Path{
		Root: keeper.Root{
			Kind: p.Root.Kind, Module: p.Root.Module, File: p.Root.File, Line: p.Root.Line,
			Owner: p.Root.Owner, Name: p.Root.Name, Offset: p.Root.OffsetBytes,
		},
		Samples: p.Samples, Complete: p.Complete,
	}
	for _, l := range p.Links {
		link := keeper.Link{
			How: l.How, Name: l.Name, Type: l.Type, TypeSize: l.SizeBytes, Entries: -1,
			PerMinute: l.EntriesPerMin, Repeated: l.Repeated,
		}
		if l.Entries != nil {
			link.Entries = *l.Entries
		}
		out.Links = append(out.Links, link)
	}
	return out
}
