package tracer

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// Of a process that runs, both are its RSS while it is looked at.
func TestTheKernelsCountThatIsNearerToThePagesIsTaken(t *testing.T) {
	const far = 1 << 40 // its square is too large
	run := func(start, end uint64, swapped bool) pages.Run {
		return pages.Run{Span: pages.Span{Start: start, End: end}, Swapped: swapped}
	}
	found := pages.Runs{run(0, 100, false), run(100, 900, true), run(900, 1000, false)} // 200 bytes
	for _, c := range []struct {
		one, other, want int64
		sampled          []sampled
	}{
		{one: 200, other: 190, want: 200},
		{one: 230, other: 190, want: 190},
		{one: 170, other: 210, want: 210},
		{one: 190, other: 210, want: 190},
		{one: 1000, other: 210, want: 210},
		{one: 200 + far, other: 201 + far/2, want: 201 + far/2},
		{one: growth.Unknown, other: 201, want: 201},
		{one: 1000, other: 210, want: 1000, sampled: make([]sampled, 1)},
	} {
		s := &scan{runs: found, sampled: c.sampled}
		if got := s.nearer(process.Status{RSS: c.one}, process.Status{RSS: c.other}); got.RSS != c.want {
			t.Errorf("of %d and %d it takes %d, want %d", c.one, c.other, got.RSS, c.want)
		}
	}
}
