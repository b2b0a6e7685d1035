package chart

import (
	"slices"
	"testing"
	"time"
)

func TestCurve(t *testing.T) {
	t.Run("bounded", testBounded)
	t.Run("immutable", testImmutable)
	t.Run("short", testShort)
}

func testBounded(t *testing.T) {
	var curve Curve
	for second := range 100_000 {
		size := int64(1000)
		if second == 77_777 {
			size = 5000 // a spike of one second
		}
		curve = curve.With(time.Duration(second)*time.Second, size)
	}

	if len(curve.Points) > maxPoints || len(curve.Points) < maxPoints/3 {
		t.Fatalf("%d points", len(curve.Points))
	}
	if curve.Min != 1000 || curve.Max != 5000 {
		t.Errorf("from %d to %d", curve.Min, curve.Max)
	}

	spikes := 0
	for i, size := range curve.Columns(100, 100_000*time.Second) {
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

func testImmutable(t *testing.T) {
	var before Curve
	for second := range 3*maxPoints - 1 { // so that the last point is of several moments
		before = before.With(time.Duration(second)*time.Second, 1)
	}

	copied := slices.Clone(before.Points)
	_ = before.With(3*maxPoints*time.Second, 9)
	_ = before.With(before.Points[len(before.Points)-1].At, 9)
	if !slices.Equal(before.Points, copied) || before.Max != 1 {
		t.Errorf("%+v", before)
	}
}

func testShort(t *testing.T) {
	curve := Curve{}.With(0, 10).With(time.Second, 20)
	want := []int64{10, 10, 20, 20}
	for i, size := range curve.Columns(4, 2*time.Second) {
		if size != want[i] {
			t.Errorf("column %d is %d, want %d", i, size, want[i])
		}
	}
}

// TestDraw proves that the highest size fills a column, and the lowest has an eighth of a line.
func TestDraw(t *testing.T) {
	curve := Curve{}.With(0, 100).With(time.Second, 450).With(2*time.Second, 800)
	got := Draw(curve.Columns(3, 3*time.Second), ScaleOf(curve), 2)
	if want := []string{"  █", "▁██"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
