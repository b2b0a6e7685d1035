package live

import (
	"slices"
	"testing"
	"time"
)

func TestATrailOfAnyLengthKeepsItsExtremesInFewPoints(t *testing.T) {
	var trail Trail
	for second := range 100_000 {
		size := int64(1000)
		if second == 77_777 {
			size = 5000 // a spike of one second
		}
		trail = trail.With(time.Duration(second)*time.Second, size)
	}
	if len(trail.Points) > mostPoints || len(trail.Points) < mostPoints/3 {
		t.Fatalf("%d points", len(trail.Points))
	}
	if trail.Min != 1000 || trail.Max != 5000 {
		t.Errorf("from %d to %d", trail.Min, trail.Max)
	}
	spikes := 0
	for i, size := range trail.columns(100, 100_000*time.Second) {
		if size == 5000 {
			spikes++
			if i != 77 {
				t.Errorf("the spike is in column %d", i)
			}
		}
	}
	if spikes != 1 {
		t.Errorf("%d columns with a spike", spikes)
	}
}

func TestATrailThatIsHandedOverChangesNoMore(t *testing.T) {
	var before Trail
	for second := range 3*mostPoints - 1 { // so that the last point is of several moments
		before = before.With(time.Duration(second)*time.Second, 1)
	}
	copied := slices.Clone(before.Points)
	_ = before.With(3*mostPoints*time.Second, 9)
	_ = before.With(before.Points[len(before.Points)-1].At, 9)
	if !slices.Equal(before.Points, copied) || before.Max != 1 {
		t.Errorf("%+v", before)
	}
}

func TestAShortTrailFillsTheChart(t *testing.T) {
	trail := Trail{}.With(0, 10).With(time.Second, 20)
	want := []int64{10, 10, 20, 20}
	for i, size := range trail.columns(4, 2*time.Second) {
		if size != want[i] {
			t.Errorf("column %d is %d, want %d", i, size, want[i])
		}
	}
}
