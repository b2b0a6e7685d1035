package objects

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A nodeLink is the reference of a node to the next one.
type nodeLink struct{ node, next uint64 }

// backBy returns previous of listBack by links: of a node with several, the first counts.
func backBy(links []nodeLink) func(node uint64) []uint64 {
	next := make(map[uint64]uint64)
	for _, l := range slices.Backward(links) {
		next[l.node] = l.next
	}
	from := make(map[uint64][]uint64)
	for node, to := range next {
		if _, ok := next[to]; ok {
			from[to] = append(from[to], node)
		}
	}
	return func(node uint64) []uint64 { return slices.Clone(from[node]) }
}

// mustBeChain checks the nodes that listBack returns by the links alone.
func mustBeChain(t *testing.T, links []nodeLink, nodes []uint64) {
	t.Helper()
	previous := backBy(links)
	referrers := func(to uint64) []uint64 {
		return slices.DeleteFunc(previous(to), func(node uint64) bool { return node == to })
	}

	for i, node := range nodes {
		from := referrers(node)
		if i < len(nodes)-1 && (len(from) != 1 || from[0] != nodes[i+1]) {
			t.Fatalf("%d follows %d in %v of %v", nodes[i+1], node, nodes, links)
		}
	}
	last := referrers(nodes[len(nodes)-1])
	goesOn := len(last) == 1 && last[0] != nodes[0]
	unique := slices.Compact(slices.Sorted(slices.Values(nodes)))
	if goesOn || len(unique) != len(nodes) {
		t.Fatalf("%v ends too early or has a node twice: %v", nodes, links)
	}
}

func TestChains(t *testing.T) {
	t.Run("random links", func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for range 20_000 {
			count := 1 + r.Uint64N(12)
			var links []nodeLink
			for range r.Uint64N(2 * count) {
				links = append(links, nodeLink{r.Uint64N(count), r.Uint64N(count + 2)})
			}
			node := r.Uint64N(count + 1)
			nodes := listBack(node, backBy(links))
			if nodes[0] != node {
				t.Fatal(nodes, node)
			}
			mustBeChain(t, links, nodes)
		}
	})

	t.Run("long list", func(t *testing.T) {
		const count = 1 << 16
		links := make([]nodeLink, count)
		for i := range links { // the last one refers to no node
			links[i] = nodeLink{uint64(64 * (i + 1)), uint64(64 * (i + 2))}
		}
		nodes := listBack(64*count, backBy(links))
		if len(nodes) != count || nodes[count-1] != 64 {
			t.Errorf("%d nodes up to %d", len(nodes), nodes[len(nodes)-1])
		}
	})
}

func FuzzChains(f *testing.F) {
	f.Add([]byte{1, 2, 2, 3, 3, 1}, uint8(1))
	f.Add([]byte{1, 1, 2, 1, 3, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, words []byte, node uint8) {
		var links []nodeLink
		for pair := range slices.Chunk(words, 2) {
			links = append(links, nodeLink{uint64(pair[0]), uint64(pair[len(pair)-1])})
		}
		nodes := listBack(uint64(node), backBy(links))
		mustBeChain(t, links, nodes)
	})
}
