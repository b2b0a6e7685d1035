package objects

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A noisyReader reads a process, and puts other words in place of some: words that a process may
// forge, or may change meanwhile.
type noisyReader struct {
	*process.Memory
	random *rand.Rand
	share  float64
	words  []uint64 // that were read
}

func (n *noisyReader) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents, err := n.Memory.Peek(addresses, size)
	for _, content := range contents {
		n.spoil(content)
	}
	return contents, err
}

func (n *noisyReader) PeekPages(address uint64, buffer []byte) ([]bool, error) {
	present, err := n.Memory.PeekPages(address, buffer)
	n.spoil(buffer)
	return present, err
}

func (n *noisyReader) PeekPagesAt(addresses []uint64, buffer []byte) ([]bool, error) {
	present, err := n.Memory.PeekPagesAt(addresses, buffer)
	n.spoil(buffer)
	return present, err
}

func (n *noisyReader) PeekBlocks(b hostile.Blocks, buffer []byte) ([]uint64, error) {
	pages, err := n.Memory.PeekBlocks(b, buffer)
	n.spoil(buffer[:uint64(len(pages))*process.PageSize])
	return pages, err
}

func (n *noisyReader) spoil(content []byte) {
	count := int(n.share*float64(len(content)/wordSize) + n.random.Float64())
	for range count {
		if len(content) < wordSize {
			return
		}
		at := content[n.random.IntN(len(content)/wordSize)*wordSize:]
		n.words = append(n.words, binary.LittleEndian.Uint64(at))
		other := n.words[n.random.IntN(len(n.words))]
		values := []uint64{
			other, other + wordSize, other ^ 1<<n.random.IntN(64), 0, 1, ^uint64(0), 1 << 60, 1 << 40,
			n.random.Uint64N(1 << 16),
		}
		binary.LittleEndian.PutUint64(at, values[n.random.IntN(len(values))])
	}
}

// TestNoise counts and searches memory of which a part is replaced: whatever is read, both end, and
// their results are within bounds.
func TestNoise(t *testing.T) {
	script := `
class Item: pass
kept = {number: [Item(), {number}, (number, str(number))] for number in range(2000)}
import collections
queue = collections.deque(kept.values())
print("ready", flush=True)
input()
`
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", script))
	target.Await("ready")
	h := openHeap(t, target.PID())

	ctx := context.Background()
	whole := tracertest.Must(h.Census(ctx, CensusOptions{Samples: 8}))(t)
	for seed := range uint64(12) {
		tracertest.NoError(t, h.refresh())
		noise := &noisyReader{Memory: h.reader, random: rand.New(rand.NewPCG(seed, 0))}
		noise.share = []float64{1e-4, 1e-2, 0.2}[seed%3]
		h.memory.reader = noise
		counted := tracertest.Must(h.count(ctx, CensusOptions{Samples: 8, Before: whole}))(t)
		for _, one := range counted.Types {
			if one.Count < 0 || one.Bytes < 0 || len(one.Type) > 2*maxTypeName {
				t.Errorf("seed %d: %+v", seed, one)
			}
		}
		suspects := []Suspect{
			{Type: "__main__.Item", Objects: whole.Samples["__main__.Item"]},
			{Type: "set", Objects: whole.Samples["set"]},
		}
		found, err := h.searchIn(newBudget(ctx, 2*time.Second), suspects, process.OwnCPUTime())
		if err != nil || len(found) != len(suspects) {
			t.Fatalf("%+v, %v", found, err)
		}
		for i, s := range found {
			mustBeSound(t, s, len(suspects[i].Objects))
		}
	}
}
