package census

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func TestGrown(t *testing.T) {
	before := &Result{PID: 1, Elapsed: time.Minute, Types: []TypeCount{
		{Type: "dict", Count: 100, Bytes: 6400, Margin: 30},
		{Type: "list", Count: 50, Bytes: 4000},
		{Type: "int", Count: 10, Bytes: 280},
	}}

	after := &Result{PID: 1, Elapsed: 3 * time.Minute, Types: []TypeCount{
		{Type: "str", Count: 20, Bytes: 1000},                 // new
		{Type: "dict", Count: 300, Bytes: 19_200, Margin: 40}, // 200 more, +-50
		{Type: "list", Count: 49, Bytes: 9000},                // fewer, though larger
		{Type: "int", Count: 40, Bytes: 1120, Margin: 30},     // 30 more, +-30
	}}

	want := []TypeGrowth{
		{Type: "dict", Before: 100, After: 300, Bytes: 12_800, PerMinute: 100, Low: 75, High: 125},
		{Type: "str", After: 20, Bytes: 1000, PerMinute: 10, Low: 10, High: 10},
	}
	if got := Grown(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// A census of a share may have missed the few windows that have all objects of a type: another
	// one that reads everything finds them, and they are not new.
	sampled, whole := &Result{PID: 1, Share: 0.76}, &Result{
		PID: 1, Elapsed: time.Minute, Share: 1, Types: []TypeCount{
			{Type: "ast.NodeDef", Count: 90, Bytes: 4320, Windows: 3},
			{Type: "torch.Tensor", Count: 500, Bytes: 36_000}, // all of them are counted
		},
	}
	want = []TypeGrowth{
		{Type: "torch.Tensor", After: 500, Bytes: 36_000, PerMinute: 500, Low: 500, High: 500},
	}
	if got := Grown(sampled, whole); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	cut := *after
	cut.Cut = true
	other, incomplete := *after, *after
	other.PID, incomplete.Missing = 2, "objects above 512 bytes"
	for name, after := range map[string]*Result{
		"another process": &other, "another part": &incomplete, "no time": before, "cut": &cut,
	} {
		if got := Grown(before, after); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// sampled returns a census's counts of a type, whose objects windows has by window. The census
// reads a share of the windows at random.
func sampled(r *rand.Rand, windows []float64, share float64, elapsed time.Duration) *Result {
	var c TypeCount
	var squares float64
	for _, n := range windows {
		if n > 0 && r.Float64() < share {
			c.Count += n / share
			squares += n * n
			c.Windows++
		}
	}

	c.Margin = 1.96 * math.Sqrt(squares*(1-share)) / share
	result := &Result{PID: 1, Elapsed: elapsed, Share: share}
	if c.Windows > 0 {
		c.Type = "Record"
		result.Types = []TypeCount{c}
	}
	return result
}

// TestGrownSampled takes many pairs of samples. Where the number of objects does not change, growth
// is said of hardly any, be they in few windows or in many. Where it doubles, the growth is in the
// interval, and it is found in many windows.
func TestGrownSampled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const trials = 2000
	for _, share := range []float64{0.05, 0.2, 0.5} {
		for _, count := range []int{1, 2, 5, 10, 30, 100, 400} {
			windows, twice := make([]float64, count), make([]float64, 2*count)
			for i := range twice {
				twice[i] = 500 + float64(r.IntN(1000))
			}
			copy(windows, twice)
			more := 0.0 // objects
			for _, n := range twice[count:] {
				more += n
			}
			wrong, right, outside := 0, 0, 0
			for range trials {
				before := sampled(r, windows, share, 0)
				wrong += len(Grown(before, sampled(r, windows, share, time.Minute)))
				for _, g := range Grown(before, sampled(r, twice, share, time.Minute)) {
					right++
					if more < g.Low || more > g.High {
						outside++
					}
				}
			}
			if wrong > trials*5/100 || outside > 3+right*8/100 {
				t.Errorf("%d windows, a share of %g: %d of %d grow that do not; %d of %d are not in the interval",
					count, share, wrong, trials, outside, right)
			}
			if float64(count)*share > 60 && right < trials*9/10 {
				t.Errorf("%d windows, a share of %g: %d of %d are found", count, share, right,
					trials)
			}
		}
	}
}

func TestGrownStorages(t *testing.T) {
	at := func(minutes time.Duration, groups ...TensorGroup) *Result {
		return &Result{Elapsed: minutes * time.Minute, Tensors: Tensors{Groups: groups}}
	}
	group := func(shape int64, device string, storages int, bytes int64) TensorGroup {
		return TensorGroup{
			DType: "float32", Shape: []int64{shape}, Device: device, Storages: storages, Bytes: bytes,
		}
	}
	unknown := at(3)
	unknown.Tensors.Unknown = TooMany
	first := at(1, group(8, "cpu", 10, 1000), group(4, "cpu", 2, 600), group(8, "cuda:0", 1, 9000))
	last := at(3, group(8, "cpu", 30, 3000), group(4, "cpu", 1, 300), group(8, "cuda:0", 5, 45000))
	near, far := at(2, group(8, "cpu", 24, 2400)), at(2, group(8, "cpu", 4, 400))
	for name, c := range map[string]struct {
		between, before, after *Result
		bytes, margin          float64
		ok                     bool
	}{
		"grown":                    {first, first, last, 1700, 800, true},
		"a line":                   {near, first, last, 1700, 800, true},
		"no line":                  {far, first, last, 1700, 2050, true},
		"not known between":        {unknown, first, last, 1700, 800, true},
		"one census":               {first, nil, last, 0, 0, false},
		"in wrong order":           {first, last, first, 0, 0, false},
		"not known":                {first, first, unknown, 0, 0, false},
		"a process without tensor": {first, at(1), at(2), 0, 0, true},
	} {
		bytes, margin, ok := GrownStorages([]*Result{c.between}, c.before, c.after)
		if bytes != c.bytes || margin != c.margin || ok != c.ok {
			t.Errorf("%s: %g, %g, %t", name, bytes, margin, ok)
		}
	}
}
