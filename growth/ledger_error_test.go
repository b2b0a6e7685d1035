package growth

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestTheErrorIsThatOfWhatCameAndWentAlone(t *testing.T) {
	const weight = 1000
	moment := func(samples float64, births ...Birth) *Snapshot {
		h := Holding{Stack: ofProcess(1, "f"), Kind: KindHeap, InuseBytes: int64(samples * weight), Births: births}
		h.ResidentBytes = h.InuseBytes
		h.Variance = samples * weight * weight
		h.ResidentVariance = h.Variance / 4 // half of each is resident
		free := Holding{Stack: NamedStack(1, "[free]"), Kind: KindRetained, ResidentBytes: 1 << 30, ResidentVariance: h.ResidentVariance}
		return &Snapshot{Elapsed: time.Duration(samples), Residents: []Resident{{PID: 1, RSS: 1}}, Holdings: []Holding{h, free}}
	}
	birth := func(bin int, samples float64) Birth { return Birth{bin, samples * weight, samples * weight * weight} }
	for name, c := range map[string]struct {
		start, end *Snapshot
		samples    float64 // behind the error
	}{
		"nothing moved":   {moment(900), moment(900, birth(0, 900)), 0},
		"born":            {moment(900), moment(1000, birth(0, 900), birth(1, 100)), 100},
		"freed":           {moment(900), moment(800, birth(0, 800)), 100},
		"replaced":        {moment(900), moment(900, birth(0, 700), birth(1, 150), birth(2, 50)), 400},
		"without births":  {moment(900), moment(1000), 1900},
		"all of it freed": {moment(900), moment(0), 900},
	} {
		c.start.Elapsed, c.end.Elapsed = time.Second, 3*time.Second
		c.end.Bins = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
		want := 1.96 * math.Sqrt(c.samples) * weight / 2
		for _, kind := range []Kind{KindHeap, KindRetained} {
			if r := rowOf(t, Ledger(c.start, c.end), 1, kind); math.Abs(r.Error-want) > 1e-4*want {
				t.Errorf("%s: %s ± %.0f bytes, want %.0f", name, kind, r.Error, want)
			}
		}
		for _, h := range Between(c.start, c.end) {
			if h.Kind == KindHeap && math.Abs(h.Margin()-2*want) > 1e-4*want {
				t.Errorf("%s: what is asked for grows by %d ± %.0f bytes, want %.0f", name, h.InuseBytes, h.Margin(), 2*want)
			}
		}
	}
}

const (
	simulatedInterval = 64 << 10
	simulatedArenas   = 3
	simulatedHeader   = 16 // bytes of each object
)

// A simulatedHeap is objects of all families, each in an arena and with a header.
type simulatedHeap struct {
	all, sampled [simulatedArenas][][]simulatedObject // by family
}

func simulateHeap(random *rand.Rand) *simulatedHeap {
	h := &simulatedHeap{}
	for i, family := range simulatedFamilies {
		objects := family.draw(random, simulatedInterval)
		sampled := make(map[simulatedObject]bool)
		for _, o := range sampledBytewise(random, objects, simulatedInterval) {
			sampled[o] = true
		}
		for a := range h.all {
			h.all[a], h.sampled[a] = append(h.all[a], nil), append(h.sampled[a], nil)
		}
		for _, o := range objects {
			a := random.IntN(simulatedArenas)
			h.all[a][i] = append(h.all[a][i], o)
			if sampled[o] {
				h.sampled[a][i] = append(h.sampled[a][i], o)
			}
		}
	}
	return h
}

// lives tells whether an object is alive at a moment, in seconds.
func (o *simulatedObject) lives(at float64) bool { return o.birth <= at && o.death > at }

// knownOf is what living objects hold by estimate, of each of which `of` bytes count.
func knownOf(objects []simulatedObject, at float64, of func(o *simulatedObject) float64) (bytes, variance float64) {
	for i := range objects {
		if o := &objects[i]; o.lives(at) {
			weight := 1 / (1 - math.Exp(-o.size/simulatedInterval))
			bytes += of(o) * weight
			variance += of(o) * of(o) * weight * (weight - 1)
		}
	}
	return bytes, variance
}

// addTo adds what the arenas keep, and the headers, to a snapshot: the rest of arenas that are as large as their living
// objects, which leaves nothing.
func (h *simulatedHeap) addTo(s *Snapshot, at float64) {
	header := func(*simulatedObject) float64 { return simulatedHeader }
	chunk := func(o *simulatedObject) float64 { return o.size + simulatedHeader }
	metadata := Holding{Stack: NamedStack(1, "[metadata]"), Kind: KindMetadata}
	for a := range h.all {
		rest := Holding{Stack: NamedStack(1, "[free]", string(rune('a'+a))), Kind: KindRetained}
		left := 0.0
		for i := range h.all[a] {
			bytes, variance := knownOf(h.sampled[a][i], at, chunk)
			left -= bytes
			rest.ResidentVariance += variance
			for j := range h.all[a][i] {
				if o := &h.all[a][i][j]; o.lives(at) {
					left += chunk(o)
				}
			}
			bytes, variance = knownOf(h.sampled[a][i], at, header)
			metadata.ResidentBytes += int64(bytes)
			metadata.ResidentVariance += variance
		}
		rest.ResidentBytes = int64(left)
		s.Holdings = append(s.Holdings, rest)
	}
	s.Holdings = append(s.Holdings, metadata)
}

// window is the ends of the simulated window.
func (h *simulatedHeap) window() (start, end *Snapshot) {
	var sampled [][]simulatedObject
	for i := range simulatedFamilies {
		var all []simulatedObject
		for a := range h.sampled {
			all = append(all, h.sampled[a][i]...)
		}
		sampled = append(sampled, all)
	}
	trace := simulatedTrace(sampled, simulatedInterval)
	start, end = trace[int(simulatedFrom/simulatedEvery)], trace[len(trace)-1]
	for at, s := range map[float64]*Snapshot{simulatedFrom: start, simulatedTo: end} {
		s.Residents = []Resident{{PID: 1, RSS: Unknown}}
		for i := range s.Holdings {
			o := &s.Holdings[i]
			o.ResidentBytes, o.ResidentVariance = o.InuseBytes, o.Variance
		}
		h.addTo(s, at)
	}
	return start, end
}

// truth is how much the objects have grown, and their headers.
func (h *simulatedHeap) truth() (bytes, headers float64) {
	for a := range h.all {
		for _, objects := range h.all[a] {
			bytes += trueGrowth(objects)
			for i := range objects {
				objects[i].size = simulatedHeader
			}
			headers += trueGrowth(objects)
		}
	}
	return bytes, headers
}

// grownHeap sums what all stacks hold more, by Between.
func grownHeap(start, end *Snapshot) (sum Holding) {
	for _, h := range Between(start, end) {
		if h.Kind == KindHeap {
			sum.InuseBytes += h.InuseBytes
			sum.Variance += h.Variance
		}
	}
	return sum
}

// Intervals of all stacks of a process together, of all its arenas and of each: enough is known of them for a normal
// distribution. What arenas keep is nothing, in truth. The interval of the headers has the error of both moments.
func TestTheErrorHoldsTheTrueChange(t *testing.T) {
	const rounds = 400
	random := rand.New(rand.NewPCG(3, 9))
	held := make(map[string]float64)
	for range rounds {
		h := simulateHeap(random)
		start, end := h.window()
		e := Evidence{Ledger: Ledger(start, end)}
		grown := grownHeap(start, end)
		bytes, headers := h.truth()
		if math.Abs(float64(grown.InuseBytes)-bytes) <= grown.Margin() {
			held["asked for"]++
		}
		check := func(what string, weight, truth float64, which func(r *LedgerRow) bool) {
			sum := e.sum(func(r *LedgerRow) bool { return r.PID == 1 && which(r) })
			if math.Abs(float64(sum.delta())-truth) <= sum.err {
				held[what] += weight
			}
		}
		for kind, truth := range map[Kind]float64{KindHeap: bytes, KindMetadata: headers, KindRetained: 0} {
			check(string(kind), 1, truth, func(r *LedgerRow) bool { return r.Kind == kind })
		}
		for a := range simulatedArenas {
			one := NamedStack(1, "[free]", string(rune('a'+a))).ID
			check("one arena", 1.0/simulatedArenas, 0, func(r *LedgerRow) bool { return r.Stack.ID == one })
		}
	}
	for what, n := range held {
		t.Logf("%s: %.1f %% of the intervals hold the true change", what, 100*n/rounds)
		most := 0.98
		if what == string(KindMetadata) {
			most = 1
		}
		if share := n / rounds; share < 0.93 || share > most {
			t.Errorf("%s: %.1f %% of the intervals hold the true change, want 93 to %.0f %%", what, 100*share, 100*most)
		}
	}
	if len(held) != 5 {
		t.Errorf("intervals of %d sorts, want 5", len(held))
	}
}
