package estimate

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

func TestFingerprints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var all, first, second fingerprints
		var known []liveness.Fingerprint
		unchanged := 0
		for range r.IntN(20) {
			o := liveness.TrackedObject{
				Fingerprint: liveness.Fingerprint(r.IntN(4)), Changed: r.IntN(2) == 0,
			}
			all.add(o)
			if r.IntN(2) == 0 {
				first.add(o)
			} else {
				second.add(o)
			}
			if o.Fingerprint == 0 {
				continue
			}
			known = append(known, o.Fingerprint)
			if !o.Changed {
				unchanged++
			}
		}

		first.merge(&second)
		if !reflect.DeepEqual(first, all) {
			t.Fatalf("merged: %+v, want %+v", first, all)
		}

		pairs, different := 0.0, 0.0
		for i := range known {
			for k := range i {
				pairs++
				if known[i] != known[k] {
					different++
				}
			}
		}
		want := growth.BurstEvidence{Fingerprinted: len(known), Unchanged: unchanged}
		if pairs > 0 {
			want.Diversity = different / pairs
		}
		var got growth.BurstEvidence
		all.summarize(&got)
		if math.Abs(got.Diversity-want.Diversity) > 1e-12 {
			t.Fatalf("%v: diversity %v, want %v", known, got.Diversity, want.Diversity)
		}
		got.Diversity = want.Diversity
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
}

func TestBurstEvidence(t *testing.T) {
	var one, two, both burstEvidence
	for burst := range 4 {
		for range 3 {
			small := Estimate{Weight: 2, Alive: 1, Burst: burst, aliveError: 0.5, sizeClass: 32}
			large := small
			large.sizeClass = 48
			one.add(24, small, 48, 5)
			two.add(25, large, 50, 7)
			both.add(24, small, 48, 5)
			both.add(25, large, 50, 7)
		}
	}
	one.merge(&two)
	if !reflect.DeepEqual(one, both) {
		t.Errorf("merged: %+v, want %+v", one, both)
	}

	h := growth.Holding{Variance: 144, Births: []growth.Birth{{Variance: 144}}}
	both.apply(&h, []float64{1, 1, 1, 1})
	e := h.Evidence
	if e == nil || e.Bursts != 4 || e.SizeClass != 48 {
		t.Fatalf("evidence %+v, want 4 bursts and most bytes in chunks of 48", e)
	}
	if h.Variance != 144*e.Dispersion || h.Births[0].Variance != h.Variance {
		t.Errorf("variances %v and %v, dispersion %v",
			h.Variance, h.Births[0].Variance, e.Dispersion)
	}
}
