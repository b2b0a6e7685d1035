package pages

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const modelSize = 60 // addresses of the model, each a byte

type model [modelSize]bool

func (m *model) spans() (spans Spans) {
	for at, in := range m {
		switch n := len(spans); {
		case !in:
		case n > 0 && spans[n-1].End == uint64(at):
			spans[n-1].End++
		default:
			spans = append(spans, Span{uint64(at), uint64(at) + 1})
		}
	}
	return spans
}

func randomSpans(r *rand.Rand) (Spans, *model) {
	var m model
	var spans []Span
	for range r.IntN(8) {
		start := r.Uint64N(modelSize)
		end := min(modelSize, start+r.Uint64N(10))
		spans = append(spans, Span{start, end})
		for at := start; at < end; at++ {
			m[at] = true
		}
	}
	return SpansOf(spans), &m
}

func TestSpansAgreeWithAModelOfSingleAddresses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a, inA := randomSpans(r)
		b, inB := randomSpans(r)
		var and, or, without model
		for at := range and {
			and[at], or[at], without[at] = inA[at] && inB[at], inA[at] || inB[at], inA[at] && !inB[at]
		}
		mustEqual(t, "the same", a, inA)
		mustEqual(t, "and", a.And(b), &and)
		mustEqual(t, "or", a.Or(b), &or)
		// Pieces that only touch may stay apart where nothing was joined.
		mustEqual(t, "without", SpansOf(slices.Clone(a.Without(b))), &without)
		start := r.Uint64N(modelSize)
		span := Span{start, start + r.Uint64N(modelSize-start+1)}
		if got, want := a.Holds(span), span.Len() > 0 && !slices.Contains(inA[span.Start:span.End], false); got != want {
			t.Fatalf("%v holds %v: %t", a, span, got)
		}
		if got, want := a.Len(), count(inA); got != want {
			t.Fatalf("%v has %d addresses, want %d", a, got, want)
		}
	}
}

func mustEqual(t *testing.T, what string, got Spans, want *model) {
	t.Helper()
	if !slices.Equal(got, want.spans()) {
		t.Fatalf("%s: %v, want %v", what, got, want.spans())
	}
}

func count(m *model) (n uint64) {
	for _, in := range m {
		if in {
			n++
		}
	}
	return n
}
