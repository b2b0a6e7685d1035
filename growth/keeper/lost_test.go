package keeper

import (
	"testing"
	"time"
)

// swept is a search at a moment whose first lost of so many samples nothing refers to.
func swept(at time.Duration, lost, samples int) Search {
	s := Search{PID: 7, Stack: 1, Elapsed: at, Sweep: Sweep{Samples: samples}}
	for i := range lost {
		s.Sweep.Lost = append(s.Sweep.Lost, uint64(i+1))
	}
	s.Ages = Ages{First: time.Second, Last: at - time.Second, Until: at}
	return s
}

// A proof takes enough samples of several ages that both sweeps, some time apart, have found lost, and
// all premises of both. Each case lacks one.
func TestProve(t *testing.T) {
	first, second := swept(30*time.Second, 16, 16), swept(50*time.Second, 16, 16)
	want := Proof{Lost: 16, Of: 16, First: 30 * time.Second, Second: 50 * time.Second}
	if got := Prove(&first, &second); got != want || !got.IsProven() {
		t.Errorf("%+v, want %+v", got, want)
	}
	few, less := swept(30*time.Second, 14, 16), swept(50*time.Second, 14, 14)
	if got := Prove(&few, &less); got.Lost != 14 || got.Of != 16 {
		t.Errorf("14 of 16: %+v", got)
	}
	freed := swept(50*time.Second, 12, 12)
	if got := Prove(&first, &freed); got.Lost != 12 || got.Of != 12 {
		t.Errorf("four were freed: %+v", got)
	}

	for name, change := range map[string]func(a, b *Search){
		"two are kept more":    func(a, b *Search) { b.Sweep.Lost = b.Sweep.Lost[:13] },
		"most were kept":       func(a, b *Search) { a.Sweep.Lost = a.Sweep.Lost[:13] },
		"few samples":          func(a, b *Search) { *a = swept(a.Elapsed, 7, 7) },
		"soon after":           func(a, b *Search) { b.Elapsed = a.Elapsed + 9*time.Second },
		"of the last moment":   func(a, b *Search) { a.Ages.First = a.Ages.Last - time.Second },
		"no ages":              func(a, b *Search) { a.Ages = Ages{} },
		"swapped at first":     func(a, b *Search) { a.Sweep.Premise = PremiseSwapped },
		"swapped later":        func(a, b *Search) { b.Sweep.Premise = PremiseSwapped },
		"another program":      func(a, b *Search) { b.TracedSince = time.Second },
		"others are lost then": func(a, b *Search) { b.Sweep.Lost = []uint64{101, 102, 103, 104, 105, 106, 107, 108} },
	} {
		a, b := swept(30*time.Second, 16, 16), swept(50*time.Second, 16, 16)
		if change(&a, &b); Prove(&a, &b).IsProven() {
			t.Errorf("%s: proven", name)
		}
	}
}

// Cycles are lost where the collector has run since the first sweep, and has not freed them.
func TestProveCycles(t *testing.T) {
	at := func(collections, collected int64) *Collector {
		return &Collector{Collections: collections, Collected: collected}
	}
	for name, c := range map[string]struct {
		stack         uint64
		before, after *Collector
		want          bool
	}{
		"of a stack":               {1, at(3, 100), at(5, 900), true},
		"of a type, few freed":     {0, at(3, 100), at(5, 150), true},
		"of a type, many freed":    {0, at(3, 100), at(5, 900), false},
		"one may be under way":     {1, at(3, 100), at(4, 100), false},
		"not known at first":       {1, nil, at(5, 100), false},
		"not known, or frozen":     {1, at(3, 100), nil, false},
		"gc.disable()":             {1, at(3, 100), at(3, 100), false},
		"of a type, none is freed": {0, at(3, 100), at(9, 100), true},
	} {
		a, b := swept(30*time.Second, 16, 16), swept(50*time.Second, 16, 16)
		a.Stack, b.Stack, a.Count = c.stack, c.stack, 1000
		a.Sweep.Cycles, a.Sweep.After, b.Sweep.Before = 16, c.before, c.after
		if got := Prove(&a, &b).IsProven(); got != c.want {
			t.Errorf("%s: proven %t", name, got)
		}
	}
}

// A sweep without an answer is made again, as the first or as the second one.
func TestSweepAgain(t *testing.T) {
	late := swept(50*time.Second, 16, 16)
	late.Sweep.Premise = PremiseBudget
	early := swept(50*time.Second, 0, 0)
	early.Sweep.IsEarly = true
	none := swept(70*time.Second, 0, 16)

	s := late
	s.SweepAgain(&late)
	if s.SweepAgain(&early); !s.Sweep.MayProve() || s.Sweep.AreMany() {
		t.Errorf("%+v, want it to wait for the first answer", s.Sweep)
	}
	first := swept(70*time.Second, 16, 16)
	if s.SweepAgain(&first); !s.Sweep.AreMany() || s.Proof.IsProven() {
		t.Errorf("%+v, want it to wait for the second answer", s.Sweep)
	}
	if s.SweepAgain(&late); !s.Sweep.AreMany() {
		t.Errorf("%+v, want it to wait on", s.Sweep)
	}
	kept := s
	second := swept(90*time.Second, 16, 16)
	if s.SweepAgain(&second); !s.Proof.IsProven() || s.Sweep.MayProve() {
		t.Errorf("%+v, want a proof", s)
	}
	if kept.SweepAgain(&none); kept.Proof.IsProven() || kept.Sweep.MayProve() {
		t.Errorf("%+v, want no proof and no more sweeps", kept)
	}
}

// An object that is older than full collections is no garbage.
func TestDropOldGarbage(t *testing.T) {
	for _, c := range []struct {
		collections int
		ages        Ages
		waits       WaitFor
		garbage     int
		reason      Reason
	}{
		{0, Ages{First: 1, Last: time.Minute, Until: time.Minute}, WaitEnable, 8, ReasonGarbage},
		{-1, Ages{First: 1, Last: time.Minute, Until: time.Minute}, WaitEnable, 8, ReasonGarbage},
		{1, Ages{First: 1, Last: time.Minute, Until: time.Minute}, WaitEnable, 8, ReasonGarbage},
		{2, Ages{First: 1, Last: time.Minute, Until: time.Minute}, WaitEnable, 0, ReasonChanging},
		{9, Ages{First: 1, Last: time.Minute, Until: time.Minute}, WaitUnfreeze, 8, ReasonGarbage},
		{
			9,
			Ages{First: 59 * time.Second, Last: time.Minute, Until: time.Minute},
			WaitEnable, 8,
			ReasonGarbage,
		},
	} {
		s := Search{
			Samples: 8, Garbage: 8, Reason: ReasonGarbage, Collections: c.collections, Ages: c.ages,
			Elapsed: time.Minute, Waits: Wait{For: c.waits},
		}
		if s.DropOldGarbage(); s.Garbage != c.garbage || s.Reason != c.reason {
			t.Errorf("%d collections, %+v: %d, %s", c.collections, c.ages, s.Garbage, s.Reason)
		}
	}
}
