package census

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// A population is the objects of one type in all windows, at two censuses; -1: there is no such
// window.
type population struct {
	name        string
	was, now    []int
	growth      float64
	mustBeFound float64 // part of the trials in which it is found, with a share of 0.4 and 1
}

func newPopulation(name string, mustBeFound float64, was, now []int) population {
	p := population{name: name, mustBeFound: mustBeFound, was: was, now: now}
	for i := range was {
		p.growth += float64(max(0, now[i]) - max(0, was[i]))
	}
	return p
}

// populations have 400 windows with up to 1,300 objects each. A program makes some and frees
// others.
func populations(r *rand.Rand) (all []population) {
	const windows, more = 400, 50
	full := func() int { return 1000 + r.IntN(300) }
	start := func() (was, now []int) {
		for i := range windows + more {
			n := -1
			if i < windows {
				n = full()
			}
			was, now = append(was, n), append(now, n)
		}
		return was, now
	}
	add := func(name string, mustBeFound float64, change func(was, now []int)) {
		was, now := start()
		change(was, now)
		all = append(all, newPopulation(name, mustBeFound, was, now))
	}

	add("steady", 0, func(was, now []int) {})
	add("appended to new windows", 0.95, func(was, now []int) {
		for i := range 30 {
			now[windows+i] = full()
		}
	})
	add("appended to all windows", 0.95, func(was, now []int) {
		for i := range windows {
			now[i] += r.IntN(60)
		}
	})
	add("replaced everywhere", 0, func(was, now []int) {
		for i := 0; i < windows; i += 2 {
			n := r.IntN(200)
			now[i], now[i+1] = now[i]-n, now[i+1]+n
		}
	})
	add("uneven, some freed and as many made elsewhere", 0, func(was, now []int) {
		for i := range windows {
			was[i] = int(1300 * math.Pow(r.Float64(), 3))
			now[i] = was[i]
		}
		for i := range 40 {
			for range was[i] {
				now[40+r.IntN(windows-40)]++
			}
			now[i] = 0
		}
	})
	for _, batch := range []int{1, 3, 8, 20} {
		add(fmt.Sprintf("%d windows freed, their objects in all others", batch), 0,
			func(was, now []int) {
				for i := range batch {
					for range was[i] {
						now[batch+r.IntN(windows-batch)]++
					}
					now[i] = 0
				}
			})
		add(fmt.Sprintf("%d windows given back, their objects in new ones", batch), 0,
			func(was, now []int) {
				for i := range batch {
					now[i], now[windows+i] = -1, was[i]
				}
			})
		add(fmt.Sprintf("a type of %d windows, then of as many others", batch), 0,
			func(was, now []int) {
				for i := range was {
					was[i], now[i] = 0, 0
				}
				for i := range batch {
					was[i] = full()
					now[200+i] = was[i]
				}
			})
		add(fmt.Sprintf("%d new windows", batch), 0, func(was, now []int) {
			for i := range batch {
				now[windows+i] = full()
			}
		})
	}
	return all
}

// read returns the counts of a census that reads a share of the windows.
func read(counts []int, draws []float64, share float64) *Windows {
	var numbers []uint32
	var found []WindowCount
	for i, n := range counts {
		if n < 0 {
			continue
		}
		numbers = append(numbers, uint32(i))
		if n > 0 && draws[i] < share {
			found = append(found, WindowCount{Window: uint32(i), Count: float32(n)})
		}
	}
	w := NewWindows(share, numbers, func(window uint32) bool { return draws[window] < share })

	w.Add("Record", found, 7, 70)
	return w
}

// TestWindowsDifferences draws the windows of populations of which all is known. Where nothing
// grows, growth is said in 2.5% of the trials at most. The truth is in the interval in 95%.
func TestWindowsDifferences(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const trials = 600
	const noise = 0.019 // three standard errors of 2.5% of the trials
	var misses, all int
	for _, shares := range [][2]float64{
		{0.02, 0.1}, {0.1, 0.1}, {0.4, 0.4}, {0.4, 1}, {1, 0.4}, {0.9, 0.9}, {0.98, 1},
	} {
		for _, p := range populations(r) {
			outside, wrong, found := 0, 0, 0
			draws := make([]float64, len(p.was))
			for range trials {
				for i := range draws {
					draws[i] = r.Float64()
				}

				before, after := read(p.was, draws, shares[0]), read(p.now, draws, shares[1])
				for _, d := range after.differences(before) {
					if p.growth < d.Count-d.Margin-1e-6 || p.growth > d.Count+d.Margin+1e-6 {
						outside++
					}
					if d.Count-d.Margin > max(0, p.growth)+1e-6 {
						wrong++
					}
					if d.Count-d.Margin > 0 {
						found++
					}
				}
			}

			misses, all = misses+outside, all+trials
			if part := float64(outside) / trials; part > 0.07 {
				t.Errorf("%s, shares %v: the truth is outside in %.1f%%", p.name, shares, 100*part)
			}
			if part := float64(wrong) / trials; part > 0.025+noise {
				t.Errorf("%s, shares %v: too much growth in %.1f%%", p.name, shares, 100*part)
			}
			if part := float64(found) / trials; part < p.mustBeFound && shares[0]*shares[1] == 0.4 {
				t.Errorf("%s, shares %v: growth is found in %.1f%%", p.name, shares, 100*part)
			}
		}
	}
	if misses > all*5/100 {
		t.Errorf("the truth is outside in %d of %d", misses, all)
	}
	t.Logf("the truth is outside in %.2f%% of %d", 100*float64(misses)/float64(all), all)
}

// TestWindowsAdd adds up the counts of types that have one name, and of one window that was read in
// several parts.
func TestWindowsAdd(t *testing.T) {
	of := func(counts ...WindowCount) *Windows {
		w := NewWindows(1, []uint32{4, 2, 4}, func(uint32) bool { return true })
		w.Add("Record", counts, 1, 10)
		w.Add("Record", []WindowCount{{2, 10, 100}}, 2, 20)
		return w
	}
	before, after := of(), of(WindowCount{4, 3, 30}, WindowCount{2, 5, 50}, WindowCount{4, 4, 40})
	want := []Difference{{Type: "Record", Count: 12, Bytes: 120}}
	if got := after.differences(before); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	after.LeaveOut("Record")
	if got := after.differences(before); got != nil {
		t.Errorf("%+v of a type that was left out", got)
	}
}

// TestHistory adds more censuses than there is room for: the first and the last stay, and one near
// any time since.
func TestHistory(t *testing.T) {
	var h History
	began := time.Now()

	const last = 2000
	for i := range last + 1 {
		w := NewWindows(0.5, []uint32{1}, func(uint32) bool { return true })
		w.Add("Record", []WindowCount{{1, float32(i), 0}}, 0, 0)
		h.Add(uint64(i), began.Add(time.Duration(i)*time.Minute), w)
	}

	if len(h.kept) != maxHistory || h.kept[0].id != 0 || h.kept[maxHistory-1].id != last {
		t.Fatalf("%d are kept, of %+v", len(h.kept), h.kept)
	}
	for i := 2; i < maxHistory; i++ {
		if h.kept[i].id > 10 && h.kept[i].id > 2*h.kept[i-1].id {
			t.Errorf("none between census %d and %d", h.kept[i-1].id, h.kept[i].id)
		}
	}

	after := NewWindows(0.5, []uint32{1, 2}, func(uint32) bool { return true })
	after.Add("Record", []WindowCount{{1, last, 0}, {2, 4 * last, 0}}, 100*last, 0)
	paired := h.Paired(after)
	if len(paired) != maxHistory || len(paired[0]) != 1 || paired[0][0].Count != 110*last {
		t.Errorf("%+v", paired[0])
	}

	large := NewWindows(0.5, make([]uint32, 1), func(uint32) bool { return true })
	large.counts = MaxWindowCounts + 1
	if h.Add(last+1, began.Add(time.Hour), large); h.kept[maxHistory-1].id != last {
		t.Error("a census is kept that takes half of the memory")
	}
}

// TestGrownPaired subtracts two censuses by the windows that both have read.
func TestGrownPaired(t *testing.T) {
	before := &Result{PID: 1, ID: 5, Share: 0.4, Types: []TypeCount{
		{Type: "Record", Count: 1e6, Bytes: 64e6, Margin: 1e5, Windows: 400},
		{Type: "list", Count: 1000, Bytes: 80e3, Margin: 900, Windows: 3},
		{Type: "torch.Tensor", Count: 10, Bytes: 1e6},
	}}
	after := &Result{
		PID: 1, Elapsed: 2 * time.Minute, Share: 1, Types: []TypeCount{
			{Type: "Record", Count: 1.1e6, Bytes: 70e6, Windows: 1000},
			{Type: "list", Count: 5000, Bytes: 400e3, Windows: 10},
			{Type: "torch.Tensor", Count: 20, Bytes: 3e6},
		},
		Paired: map[uint64][]Difference{5: {{"Record", 4e4, 2.6e6, 1e4}}},
	}

	want := []TypeGrowth{
		{"Record", 1.06e6, 1.1e6, 2.6e6, 2e4, 1.5e4, 2.5e4},
		{"torch.Tensor", 10, 20, 2e6, 5, 5, 5},
	}
	if got := Grown(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	after.Share, want[0].Before, want[0].After = 0.1, 1e6, 1.04e6
	if got := Grown(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	after.Paired = nil
	for _, g := range Grown(before, after) {
		if g.Type == "Record" {
			t.Errorf("%+v without the windows", g)
		}
	}
}
