package liveness

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/heaptest"
)

func TestFingerprints(t *testing.T) {
	const size = 256
	fingerprint := func(written int, holes uint64) Fingerprint {
		content := make([]byte, 4096)
		content[written] = 1
		memory := &heaptest.Forgery{Content: content, Holes: holes}
		found, err := fingerprintsOf(memory, []heap.Object{{Size: size}})
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		return found[0]
	}

	unused := fingerprint(size, 0)
	if start := fingerprint(0, 0); start == unused || start != fingerprint(0, 0) {
		t.Errorf("start: %x after %x", start, unused)
	}
	if middle := fingerprint(size/2, 0); middle == unused {
		t.Errorf("middle: %x", middle)
	}
	if hole := fingerprint(0, 1); hole != 0 {
		t.Errorf("%x of memory that cannot be read", hole)
	}
}
