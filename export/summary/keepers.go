package summary

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
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
	Paths []keeper.Path `json:"paths"`
	// Reason for which no path is named, or none of a part of the samples; absent: Paths and Garbage
	// explain all.
	Reason keeper.Reason `json:"reason,omitempty"`
	// Garbage is the number of samples to which nothing outside of a cycle of objects refers.
	Garbage int `json:"garbage"`
	// Waits is the event that the garbage waits for; absent: there is none, or it is not known.
	Waits *keeper.Wait `json:"waits,omitempty"`
	// Collections is how often the oldest generation of the garbage collector has run within
	// CollectionsS; absent where that is unknown.
	Collections  *int    `json:"collections,omitempty"`
	CollectionsS float64 `json:"collections_s,omitempty"`
	// Lost is the number of samples that are alive and that nothing in the process refers to;
	// absent: none are known to be. LostProven: two sweeps have found them lost.
	Lost       int  `json:"lost,omitempty"`
	LostProven bool `json:"lost_proven,omitempty"`
	// Unproven is why it is not known whether anything refers to the samples, and UnprovenBytes how
	// much memory that is about; Runtime is the runtime whose references cannot be read. Absent:
	// there was no sweep, or it is known.
	Unproven      keeper.Premise `json:"unproven,omitempty"`
	UnprovenBytes uint64         `json:"unproven_bytes,omitempty"`
	Runtime       string         `json:"runtime,omitempty"`
	// AtS is when the entries of containers were read.
	AtS float64 `json:"at_s"`
	// OwnS is the CPU time of the search up to this result. Suspects are searched for together.
	OwnS float64 `json:"own_s"`
	// Earlier: the last search was not made, or its time was used up; absent: this is it.
	Earlier bool `json:"earlier,omitempty"`
}

// Bounds on the process's own names in the file.
const (
	maxKeyChars    = 40 // of a variable, an attribute and the key of a dict
	maxKeepers     = 8
	maxKeeperPaths = 4
	maxLinks       = 40
)

// KeepersOf converts searches.
func KeepersOf(searches []keeper.Search) []Keeper {
	var keepers []Keeper
	for _, s := range searches {
		k := Keeper{
			PID: s.PID, StackID: stackID(s.Stack), Type: units.Name(s.Type), Samples: s.Samples,
			Paths: []keeper.Path{}, Reason: s.Reason, Garbage: s.Garbage,
			AtS: Seconds(s.Elapsed), OwnS: Seconds(s.Took), Earlier: s.IsEarlier,
			Lost: s.Sweep.Unheld(), Unproven: s.Sweep.Premise, UnprovenBytes: s.Sweep.Bytes,
			Runtime: s.Sweep.Runtime,
		}
		if s.Waits.For != "" {
			k.Waits = &s.Waits
		}
		if s.Proof.IsProven() {
			k.Lost, k.LostProven, k.Unproven, k.UnprovenBytes = s.Proof.Lost, true, "", 0
		}
		if s.Collections >= 0 {
			k.Collections, k.CollectionsS = &s.Collections, Seconds(s.CollectionsTime)
		}
		for i, p := range s.Paths[:min(maxKeeperPaths, len(s.Paths))] {
			p = printable(p)
			for n := range p.Links {
				if l := &p.Links[n]; i > 0 || !areMarked(l.Readings) {
					l.Readings = nil
				}
			}
			if s.Samples > 0 {
				p.Share = min(1, float64(p.Samples)/float64(s.Samples))
			}
			k.Paths = append(k.Paths, p)
		}
		keepers = append(keepers, k)
	}
	return keepers
}

// areMarked reports whether a later trace can compare all readings of a link. A file may have any.
func areMarked(readings []keeper.Reading) bool {
	return !slices.ContainsFunc(readings, func(r keeper.Reading) bool {
		inOrder := slices.IsSortedFunc(r.Marks, func(a, b keeper.Mark) int {
			return cmp.Or(cmp.Compare(a.Place, b.Place), -1) // no place twice
		})
		return !r.IsMarked() || r.Entries < 0 || !inOrder
	})
}

// SearchesOf returns the searches in a process whose containers a later trace can read again.
func SearchesOf(s *Summary, pid int) (searches []keeper.Search) {
	for _, k := range s.Keepers[:min(maxKeepers, len(s.Keepers))] {
		at := time.Duration(k.AtS * float64(time.Second))
		isUsable := !slices.ContainsFunc(k.Paths, func(p keeper.Path) bool {
			return slices.ContainsFunc(p.Links, func(l keeper.Link) bool { return !areMarked(l.Readings) })
		})
		if k.PID == pid && k.AtS >= 0 && k.AtS <= s.DurationS && isUsable {
			searches = append(searches, keeper.Search{PID: pid, Paths: k.Paths, Elapsed: at})
		}
	}
	return searches
}

// printable returns a path whose names are short and fit for people.
func printable(p keeper.Path) keeper.Path {
	root := &p.Root
	root.Module, root.File = units.Name(root.Module), units.Name(root.File)
	root.Owner = units.Name(root.Owner)
	if root.Kind == keeper.RootStatic || root.Kind == keeper.RootCycle {
		root.Name = units.Name(root.Name)
	} else {
		root.Name = key(root.Name)
	}

	links := []keeper.Link{}
	for _, l := range p.Links[:min(maxLinks, len(p.Links))] {
		l.Name, l.Type = key(l.Name), units.Name(l.Type)
		l.Names = slices.Clone(l.Names)
		for i, name := range l.Names {
			l.Names[i] = key(name)
		}
		links = append(links, l)
	}
	p.Links = links
	return p
}

// key makes the name of a variable or an attribute, or the key of a dict, fit for people.
func key(name string) string {
	name = growth.Printable(name)
	if utf8.RuneCountInString(name) <= maxKeyChars {
		return name
	}
	return string([]rune(name)[:maxKeyChars-1]) + "…"
}

// MinKeeperShare is the share of the samples from which on a path explains most of them.
const MinKeeperShare = 0.5

// KeeperOf is the answer of the search for who keeps the memory of a suspect: of its stack that
// grew most and has an answer; nil: none was searched for.
func KeeperOf(keepers []Keeper, c *Suspect) *Keeper {
	var unanswered *Keeper
	for _, id := range c.StackIDs {
		i := slices.IndexFunc(keepers, func(k Keeper) bool { return k.StackID == id })
		switch {
		case i < 0:
		case keepers[i].isAnswer():
			return &keepers[i]
		case unanswered == nil:
			unanswered = &keepers[i]
		}
	}
	return unanswered
}

// isAnswer reports whether a search explains most of its samples.
func (k *Keeper) isAnswer() bool {
	return len(k.Paths) > 0 && k.Paths[0].Share >= MinKeeperShare || k.IsGarbage()
}

// IsGarbage reports whether most samples wait for the garbage collector.
func (k *Keeper) IsGarbage() bool { return k.Samples > 0 && 2*k.Garbage > k.Samples }

// IsCycle reports whether most samples are kept by a cycle of C++ objects alone.
func (k *Keeper) IsCycle() bool {
	return k != nil && k.isAnswer() && len(k.Paths) > 0 && k.Paths[0].Root.Kind == keeper.RootCycle
}

// MainKeeper is who keeps the memory of the first suspect, or of the type that gains most where the
// cause is small Python objects or tensors, or who keeps the objects that can pin freed memory; nil:
// it is not known.
func (s *Summary) MainKeeper() *Keeper {
	main := s.MainCause()
	areTensors := main.isOf(diagnosis.Tensors)
	if len(s.Suspects) > 0 && !areTensors { // they are little beside tensors
		if k := KeeperOf(s.Keepers, &s.Suspects[0]); k != nil && k.isAnswer() {
			return k
		}
	}
	if pins, ok := s.Evidence.Pins(); ok {
		return KeeperThatGains(s, pins.PerMinute)
	}
	if s.Objects == nil || !areTensors && !main.isOf(diagnosis.PythonObjects) {
		return nil
	}
	for _, t := range s.Objects.Types {
		if areTensors && !census.IsTensor(t.Type) {
			continue
		}
		i := slices.IndexFunc(s.Keepers, func(k Keeper) bool {
			return k.StackID == "" && k.Type == t.Type && k.PID == s.Process.PID && k.isAnswer()
		})
		if i >= 0 {
			return &s.Keepers[i]
		}
	}
	return nil
}

// KeeperOfStep is the keeper about which something is to be done: MainKeeper, or else who keeps the
// container that gains entries; nil: there is none.
func KeeperOfStep(s *Summary) *Keeper {
	k := s.MainKeeper()
	if gains, ok := s.Evidence.Gains(); ok && k == nil {
		return KeeperThatGains(s, gains.PerMinute)
	}
	return k
}

// KeeperThatGains is who keeps objects in a container that gains so many entries a minute; nil: nobody
// does.
func KeeperThatGains(s *Summary, perMinute float64) *Keeper {
	i := slices.IndexFunc(s.Keepers, func(k Keeper) bool {
		if k.PID != s.Process.PID || !k.isAnswer() || len(k.Paths) == 0 {
			return false
		}
		at := k.Paths[0].GrowingLink()
		return at >= 0 && thousandth(k.Paths[0].Links[at].PerMinute) == perMinute // as facts have it
	})
	if i < 0 {
		return nil
	}
	return &s.Keepers[i]
}

// UnansweredKeeper is the search for who keeps the memory of the first suspect, or else of a type that
// grows, which has found no answer; nil: none was made.
func (s *Summary) UnansweredKeeper() *Keeper {
	if len(s.Suspects) > 0 && !s.MainCause().isOf(diagnosis.Tensors) {
		if k := KeeperOf(s.Keepers, &s.Suspects[0]); k != nil {
			return k
		}
	}
	i := slices.IndexFunc(s.Keepers, func(k Keeper) bool {
		return k.StackID == "" && k.PID == s.Process.PID
	})
	if i < 0 {
		return nil
	}
	return &s.Keepers[i]
}

// TensorKeeper is who keeps the tensors of a process that retains them on GPUs, or that pin segments
// there, or the CUDA graphs that have the pools there; nil: it is not known.
func (s *Summary) TensorKeeper(g *GPUMemory) *Keeper {
	kept := "torch.Tensor"
	switch gpu.Diagnosis(g.Diagnosis) {
	case gpu.DiagnosisPools:
		kept = "torch.cuda.graphs.CUDAGraph"
	case gpu.DiagnosisTensors, gpu.DiagnosisFragmentation:
	default:
		return nil
	}
	i := slices.IndexFunc(s.Keepers, func(k Keeper) bool {
		return k.PID == g.Process && k.Type == kept && k.isAnswer()
	})
	if i < 0 {
		return nil
	}
	return &s.Keepers[i]
}
