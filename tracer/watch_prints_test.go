package tracer_test

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// sightingOf is the evidence for what a function holds.
func sightingOf(t *testing.T, s *tracer.Session, function string) growth.BurstEvidence {
	t.Helper()
	for _, h := range snapshot(t, s).Holdings {
		if h.Evidence != nil && h.Stack.Frames[1].Function == function {
			return *h.Evidence
		}
	}
	t.Fatalf("nothing of %s was seen in windows", function)
	return growth.BurstEvidence{}
}

func TestWhoTakesThePlaceOfAnotherIsKnownByWhatIsInIt(t *testing.T) {
	for _, size := range []string{"40", "1000", "20000"} {
		t.Run(size, func(t *testing.T) {
			target, s := startWindows(t)
			within(t, target, s, "keep 400 "+size)
			s.PollSurvivors()
			if got := sightingOf(t, s, "kept_here"); got.Fingerprinted != 400 || got.Unchanged != 400 || got.Diversity < 0.99 {
				t.Errorf("%d of %d objects are as they were, and two differ with %.3f; want all of 400, and 0.99", got.Unchanged, got.Fingerprinted, got.Diversity)
			}
			carryOut(target, "drop 150", "other 150 "+size)
			s.PollSurvivors()
			got := sightingOf(t, s, "kept_here")
			if got.Unchanged != 250 || got.Fingerprinted < 300 { // some are found dead
				t.Errorf("%d of %d objects are as they were after 150 of 400 were replaced", got.Unchanged, got.Fingerprinted)
			}
		})
	}
}

func TestObjectsThatLookTheSameTellNothing(t *testing.T) {
	target, s := startWindows(t)
	within(t, target, s, "other 400 1000")
	if got := sightingOf(t, s, "other_here"); got.Fingerprinted != 400 || got.Diversity != 0 {
		t.Errorf("of %d objects two differ with %.3f, want 400 and 0", got.Fingerprinted, got.Diversity)
	}
}
