package breakdown

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

func resident(stack *growth.Stack, kind growth.Kind, bytes, shared int64) growth.Holding {
	return growth.Holding{Stack: stack, Kind: kind, ResidentBytes: bytes, SharedBytes: shared}
}

func ofProcess(pid int, function string) *growth.Stack {
	return growth.NamedStack(pid, "", function)
}

// randomMoment is a snapshot of some of five processes, and of one that has ended: its holdings are
// of no process that was scanned. The kernel's RSS is drawn apart from the holdings.
func randomMoment(random *rand.Rand, at time.Duration) *growth.Snapshot {
	kinds := []growth.Kind{
		growth.KindHeap, growth.KindRetained, growth.KindMmap, growth.KindFile, growth.KindCOW,
		growth.KindUnexplained,
	}
	s := &growth.Snapshot{Elapsed: at, Bins: []time.Duration{time.Second, 2 * time.Second}}
	for pid := range 6 {
		pid += 10
		if isScanned := pid < 15 && random.IntN(4) > 0; isScanned {
			rss := random.Int64N(1 << 40)
			s.Residents = append(s.Residents, growth.Resident{PID: pid, RSS: rss})
		}
		for range random.IntN(40) {
			stack := ofProcess(pid, string(rune('a'+random.IntN(8))))
			h := resident(stack, kinds[random.IntN(len(kinds))], random.Int64N(1<<36)-1<<34,
				random.Int64N(1<<33))
			h.SwappedBytes = random.Int64N(3) << 20
			if random.IntN(2) == 0 {
				s.Holdings = append(s.Holdings, h)
			} else {
				s.Others = append(s.Others, h)
			}
		}
	}

	return s
}

func rssOf(s *growth.Snapshot, pid int) int64 {
	for _, r := range s.Residents {
		if r.PID == pid {
			return r.RSS
		}
	}
	return 0
}

func sharedOf(s *growth.Snapshot) (shared int64) {
	for _, h := range slices.Concat(s.Holdings, s.Others) {
		if rssOf(s, h.Stack.PID) != 0 {
			shared += h.SharedBytes
		}
	}
	return shared
}

func TestRSS(t *testing.T) {
	t.Run("rows sum to the kernel's RSS", func(t *testing.T) {
		random := rand.New(rand.NewPCG(4, 2))
		for range 500 {
			start, end := randomMoment(random, time.Second), randomMoment(random, 2*time.Second)
			before, after := make(map[int]int64), make(map[int]int64)
			unexplained := make(map[int]int)
			for _, r := range RSS(start, end) {
				if r.Kind == growth.KindSwapped {
					continue
				}
				before[r.PID] += r.Start
				after[r.PID] += r.End
				if r.Kind == growth.KindUnexplained && r.Stack.Root == growth.RootUnexplained {
					unexplained[r.PID]++
				}
			}
			var treeBefore, treeAfter int64
			for pid := 10; pid < 16; pid++ {
				from, to := rssOf(start, pid), rssOf(end, pid)
				treeBefore += from
				treeAfter += to
				if before[pid] != from || after[pid] != to {
					t.Fatalf("PID %d: rows from %d to %d bytes, RSS from %d to %d", pid,
						before[pid], after[pid], from, to)
				}
				if there := from != 0 || to != 0; there != (unexplained[pid] == 1) {
					t.Fatalf("PID %d: %d rows of what is unexplained", pid, unexplained[pid])
				}
			}
			if before[0] != treeBefore-sharedOf(start) || after[0] != treeAfter-sharedOf(end) {
				t.Fatalf("the tree: rows from %d to %d, want %d to %d", before[0], after[0],
					treeBefore-sharedOf(start), treeAfter-sharedOf(end))
			}
		}
	})

	t.Run("order", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		start, end := randomMoment(random, time.Second), randomMoment(random, 2*time.Second)
		want := RSS(start, end)
		for i := 1; i < len(want); i++ {
			a, b := &want[i-1], &want[i]
			if a.PID > b.PID || a.PID == b.PID && absolute(a.Delta()) < absolute(b.Delta()) {
				t.Fatalf("%+v before %+v", a, b)
			}
		}
		isEqual := func(a, b Row) bool {
			return a.Kind == b.Kind && a.Start == b.Start && a.End == b.End
		}
		if !slices.EqualFunc(RSS(start, end), want, isEqual) {
			t.Error("another order the second time")
		}
	})

	// Memory of two processes by stacks that read alike is one row of the tree, and shared memory
	// counts once.
	t.Run("the tree counts shared memory once", func(t *testing.T) {
		load := func(pid int, module string) *growth.Stack {
			address := uint64(0x10 * pid)
			at := &growth.Module{Path: module, Start: address}
			return &growth.Stack{
				ID: address, PID: pid,
				Frames: []growth.Frame{{Function: "load", Address: address, Module: at}},
			}
		}
		end := &growth.Snapshot{
			Residents: []growth.Resident{{PID: 1, RSS: 100}, {PID: 2, RSS: 100}, {PID: 3, RSS: 9}},
			Holdings: []growth.Holding{
				resident(load(1, "/x.so"), growth.KindShmem, 100, 0),
				resident(load(2, "/x.so"), growth.KindShmem, 100, 90),
				resident(load(3, "/y.so"), growth.KindShmem, 9, 0),
			},
		}
		var got []int64
		for _, r := range RSS(&growth.Snapshot{}, end) {
			if r.PID == 0 {
				got = append(got, r.End)
			}
		}
		if want := []int64{110, 9, 0}; !slices.Equal(got, want) {
			t.Errorf("rows of the tree: %d, want %d", got, want)
		}
	})

	t.Run("the rest of the RSS is unexplained", func(t *testing.T) {
		given := resident(growth.NamedStack(1, growth.RootUnexplained), growth.KindUnexplained, -5, 0)
		held := resident(ofProcess(1, "f"), growth.KindHeap, 70, 0)
		for _, c := range []struct {
			rss      int64
			holdings []growth.Holding
			want     int64
		}{
			{80, []growth.Holding{held}, 10},
			{60, []growth.Holding{held}, -10},
			{65, []growth.Holding{held, given}, -5},
			{64, []growth.Holding{held, given}, -6},
			{growth.Unknown, []growth.Holding{held, given}, -5},
		} {
			end := &growth.Snapshot{
				Residents: []growth.Resident{{PID: 1, RSS: c.rss}}, Holdings: c.holdings,
			}
			r := rowOf(t, RSS(&growth.Snapshot{}, end), 1, growth.KindUnexplained)
			if r.End != c.want {
				t.Errorf("RSS of %d: %d unexplained, want %d", c.rss, r.End, c.want)
			}
		}
	})

	t.Run("swapped out memory", func(t *testing.T) {
		at := func(heap, mapped int64) *growth.Snapshot {
			one := resident(ofProcess(1, "f"), growth.KindHeap, 10, 0)
			other := resident(ofProcess(1, "f"), growth.KindMmap, 0, 0)
			one.SwappedBytes, other.SwappedBytes = heap, mapped
			return &growth.Snapshot{
				Residents: []growth.Resident{{PID: 1, RSS: 10}},
				Holdings:  []growth.Holding{one, other},
			}
		}
		if r := rowOf(t, RSS(at(1, 2), at(30, 40)), 1, growth.KindSwapped); r.Start != 3 ||
			r.End != 70 {
			t.Errorf("from %d to %d, want 3 to 70", r.Start, r.End)
		}
		for _, r := range RSS(at(0, 0), at(0, 0)) {
			if r.Kind == growth.KindSwapped {
				t.Errorf("nothing is swapped out: %+v", r)
			}
		}
	})
}

func rowOf(t *testing.T, rows []Row, pid int, kind growth.Kind) Row {
	t.Helper()
	rows = slices.DeleteFunc(slices.Clone(rows),
		func(r Row) bool { return r.PID != pid || r.Kind != kind })
	if len(rows) != 1 {
		t.Fatalf("%d rows of PID %d and kind %s, want one: %+v", len(rows), pid, kind, rows)
	}
	return rows[0]
}

// TestRSSErrorSimulated has objects that are born, freed and replaced.
func TestRSSError(t *testing.T) {
	const weight = 1000
	moment := func(samples float64, births ...growth.Birth) *growth.Snapshot {
		h := resident(ofProcess(1, "f"), growth.KindHeap, int64(samples*weight), 0)
		h.InuseBytes, h.Births = h.ResidentBytes, births
		h.Variance = samples * weight * weight
		h.ResidentVariance = h.Variance / 4 // half of each is resident
		free := resident(growth.NamedStack(1, "[free]"), growth.KindRetained, 1<<30, 0)
		free.ResidentVariance = h.ResidentVariance
		return &growth.Snapshot{
			Residents: []growth.Resident{{PID: 1, RSS: 1}}, Holdings: []growth.Holding{h, free},
		}
	}

	stay := growth.Birth{InuseBytes: 900 * weight, Variance: 900 * weight * weight}
	for name, c := range map[string]struct {
		end     *growth.Snapshot
		samples float64 // behind the error
	}{
		"nothing moved":   {moment(900, stay), 0},
		"without births":  {moment(1000), 1900},
		"all of it freed": {moment(0), 900},
	} {
		start := moment(900)
		start.Elapsed, c.end.Elapsed = time.Second, 3*time.Second
		c.end.Bins = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
		want := 1.96 * math.Sqrt(c.samples) * weight / 2
		for _, kind := range []growth.Kind{growth.KindHeap, growth.KindRetained} {
			if r := rowOf(t, RSS(start, c.end), 1, kind); math.Abs(r.Error-want) > 1e-4*want {
				t.Errorf("%s: %s ± %.0f bytes, want %.0f", name, kind, r.Error, want)
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
	all, sampled [simulatedArenas][][]growthtest.Object // by family
}

func simulateHeap(random *rand.Rand) *simulatedHeap {
	h := &simulatedHeap{}
	for i, family := range growthtest.Families {
		objects := family.Draw(random, simulatedInterval)
		sampled := make(map[growthtest.Object]bool)
		for _, o := range growthtest.SampledBytewise(random, objects, simulatedInterval) {
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

// knownOf is the estimated memory of living objects, each of which counts with `of` bytes.
func knownOf(
	objects []growthtest.Object,
	at float64,
	of func(o *growthtest.Object) float64,
) (bytes, variance float64) {
	for i := range objects {
		if o := &objects[i]; o.IsAlive(at) {
			weight := 1 / (1 - math.Exp(-o.Size/simulatedInterval))
			bytes += of(o) * weight
			variance += of(o) * of(o) * weight * (weight - 1)
		}
	}
	return bytes, variance
}

// addTo adds the arenas' free memory, and the headers, to a snapshot: the rest of arenas that are
// as large as their living objects, which leaves nothing.
func (h *simulatedHeap) addTo(s *growth.Snapshot, at float64) {
	header := func(*growthtest.Object) float64 { return simulatedHeader }
	chunk := func(o *growthtest.Object) float64 { return o.Size + simulatedHeader }
	metadata := growth.Holding{Stack: growth.NamedStack(1, "[metadata]"), Kind: growth.KindMetadata}
	for a := range h.all {
		rest := growth.Holding{
			Stack: growth.NamedStack(1, "[free]", string(rune('a'+a))), Kind: growth.KindRetained,
		}
		left := 0.0
		for i := range h.all[a] {
			bytes, variance := knownOf(h.sampled[a][i], at, chunk)
			left -= bytes
			rest.ResidentVariance += variance
			for j := range h.all[a][i] {
				if o := &h.all[a][i][j]; o.IsAlive(at) {
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
func (h *simulatedHeap) window() (start, end *growth.Snapshot) {
	var sampled [][]growthtest.Object
	for i := range growthtest.Families {
		var all []growthtest.Object
		for a := range h.sampled {
			all = append(all, h.sampled[a][i]...)
		}
		sampled = append(sampled, all)
	}

	trace := growthtest.Trace(sampled, simulatedInterval)
	start, end = trace[int(growthtest.From/growthtest.Every)], trace[len(trace)-1]
	for at, s := range map[float64]*growth.Snapshot{growthtest.From: start, growthtest.To: end} {
		s.Residents = []growth.Resident{{PID: 1, RSS: growth.Unknown}}
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
			bytes += growthtest.TrueGrowth(objects)
			for i := range objects {
				objects[i].Size = simulatedHeader
			}
			headers += growthtest.TrueGrowth(objects)
		}
	}
	return bytes, headers
}

// grownHeap sums the growth of all stacks, by Between.
func grownHeap(start, end *growth.Snapshot) (sum growth.Holding) {
	for _, h := range growth.Between(start, end) {
		if h.Kind == growth.KindHeap {
			sum.InuseBytes += h.InuseBytes
			sum.Variance += h.Variance
		}
	}
	return sum
}

// Intervals of all stacks of a process together, of all its arenas and of each: enough is known of
// them for a normal distribution. Arenas keep nothing, in truth. The interval of the headers has
// the error of both moments.
func TestRSSErrorSimulated(t *testing.T) {
	const rounds = 400
	random := rand.New(rand.NewPCG(3, 9))
	held := make(map[string]float64)
	for range rounds {
		h := simulateHeap(random)
		start, end := h.window()
		rows := RSS(start, end)
		grown := grownHeap(start, end)
		bytes, headers := h.truth()
		if math.Abs(float64(grown.InuseBytes)-bytes) <= grown.Margin() {
			held["asked for"]++
		}
		check := func(what string, weight, truth float64, which func(r *Row) bool) {
			var delta, margin float64
			for i := range rows {
				if r := &rows[i]; r.PID == 1 && which(r) {
					delta, margin = delta+float64(r.Delta()), math.Hypot(margin, r.Error)
				}
			}
			if math.Abs(delta-truth) <= margin {
				held[what] += weight
			}
		}
		for kind, truth := range map[growth.Kind]float64{
			growth.KindHeap: bytes, growth.KindMetadata: headers, growth.KindRetained: 0,
		} {
			check(string(kind), 1, truth, func(r *Row) bool { return r.Kind == kind })
		}
		for a := range simulatedArenas {
			one := growth.NamedStack(1, "[free]", string(rune('a'+a))).ID
			check("one arena", 1.0/simulatedArenas, 0,
				func(r *Row) bool { return r.Stack.ID == one })
		}
	}

	for what, n := range held {
		t.Logf("%s: %.1f %% of the intervals hold the true change", what, 100*n/rounds)
		most := 0.98
		if what == string(growth.KindMetadata) {
			most = 1
		}
		if share := n / rounds; share < 0.93 || share > most {
			t.Errorf("%s: %.1f %% of the intervals hold the true change, want 93 to %.0f %%", what,
				100*share, 100*most)
		}
	}

	if len(held) != 5 {
		t.Errorf("intervals of %d sorts, want 5", len(held))
	}
}

func TestGPU(t *testing.T) {
	block, cache := ofProcess(1, "f"), growth.NamedStack(1, "[cached]")
	at := func(blocks, cached int64) *growth.Snapshot {
		return &growth.Snapshot{GPUHoldings: []growth.Holding{
			{Stack: block, Kind: growth.KindCudaBlock, GPU: "0", GPUBytes: blocks},
			{Stack: block, Kind: growth.KindCudaBlock, GPU: "1", GPUBytes: 7},
			{Stack: cache, Kind: growth.KindCudaCached, GPUBytes: cached},
		}}
	}
	var got []int64
	for _, r := range GPU(at(50, 9), at(90, 0)) {
		got = append(got, r.Start, r.End)
	}
	if want := []int64{50, 90, 9, 0, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("rows %d, want %d", got, want)
	}
	if rows := GPU(at(0, 0), at(0, 0)); len(rows) != 1 {
		t.Errorf("rows of 0 bytes: %+v", rows)
	}
}
