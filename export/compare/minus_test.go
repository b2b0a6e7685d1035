package compare

import (
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func sumOf(samples []*pprof.Sample, index int) (sum int64) {
	for _, s := range samples {
		sum += s.Value[index]
	}
	return sum
}

// TestSums has the difference of two profiles.
func TestMinus(t *testing.T) {
	a, _ := mixed(t, interval)
	none, err := Minus(a, a, 1)
	if err != nil || len(none.Sample) != 0 {
		t.Errorf("a profile less itself has %d samples, %v", len(none.Sample), err)
	}
	half := tracertest.Must(Minus(a, a, 0.5))(t)
	if got, want := sumOf(half.Sample, 4), sumOf(a.Sample, 4)/2; got < want-100 || got > want+100 {
		t.Errorf("a profile less half of itself is %d, want about %d", got, want)
	}
}

func TestOfProcess(t *testing.T) {
	p := profileOf(t, 1, heap(stack(1, "load", "main"), 10, 1000), heap(stack(2, "load", "main"), 3, 1000))
	if got := OfProcess(p.Copy(), "2"); len(got.Sample) != 1 || got.Sample[0].Value[4] != 3000 {
		t.Errorf("%v", got.Sample)
	}
	if got := OfProcess(p.Copy(), "3"); len(got.Sample) != 0 {
		t.Errorf("%v", got.Sample)
	}
	for _, s := range p.Sample {
		delete(s.Label, "pid")
	}
	if got := OfProcess(p.Copy(), "3"); len(got.Sample) != 2 {
		t.Errorf("without processes: %v", got.Sample)
	}
}
