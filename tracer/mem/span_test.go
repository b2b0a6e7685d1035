package mem

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const modelSize = 60 // addresses of the model, each a byte

// model is a set of addresses, one by one.
type model [modelSize]bool

func (m *model) spans() (spans Spans) {
	for address, in := range m {
		switch n := len(spans); {
		case !in:
		case n > 0 && spans[n-1].End == uint64(address):
			spans[n-1].End++
		default:
			spans = append(spans, Span{uint64(address), uint64(address) + 1})
		}
	}
	return spans
}

func (m *model) count() (n uint64) {
	for _, in := range m {
		if in {
			n++
		}
	}
	return n
}

func (m *model) mustEqual(t *testing.T, what string, got Spans) {
	t.Helper()
	if !slices.Equal(got, m.spans()) {
		t.Fatalf("%s: %v, want %v", what, got, m.spans())
	}
}

func randomSpans(r *rand.Rand) (Spans, *model) {
	var m model
	var spans []Span
	for range r.IntN(8) {
		start := r.Uint64N(modelSize)
		end := min(modelSize, start+r.Uint64N(10))
		spans = append(spans, Span{start, end})
		for address := start; address < end; address++ {
			m[address] = true
		}
	}
	return MergeSpans(spans), &m
}

func TestSpans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		a, inA := randomSpans(r)
		b, inB := randomSpans(r)
		var and, or, without model
		for i := range and {
			and[i], or[i], without[i] = inA[i] && inB[i], inA[i] || inB[i], inA[i] && !inB[i]
		}

		inA.mustEqual(t, "merged", a)
		and.mustEqual(t, "intersection", a.Intersect(b))
		or.mustEqual(t, "union", a.Union(b))
		// Parts that only touch may stay apart where nothing was merged.
		without.mustEqual(t, "difference", MergeSpans(slices.Clone(a.Subtract(b))))

		start := r.Uint64N(modelSize)
		found, ok := a.Find(start)
		if ok != inA[start] || ok && (start < found.Start || start >= found.End) {
			t.Fatalf("%v at %d: %v, %t", a, start, found, ok)
		}

		span := Span{start, start + r.Uint64N(modelSize-start+1)}
		want := span.Len() > 0 && !slices.Contains(inA[span.Start:span.End], false)
		if got := a.Contains(span); got != want {
			t.Fatalf("%v contains %v: %t", a, span, got)
		}
		if got := a.Within(span); !slices.Equal(got, a.Intersect(MergeSpans([]Span{span}))) {
			t.Fatalf("%v within %v: %v", a, span, got)
		}
		if got, want := a.Len(), inA.count(); got != want {
			t.Fatalf("%v has %d addresses, want %d", a, got, want)
		}
	}
}
