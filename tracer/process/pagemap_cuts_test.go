package process

import "testing"

// TestScanWalksFewMappings scans address space with more mappings than one call may walk: each call
// holds the lock of the address space.
func TestScanWalksFewMappings(t *testing.T) {
	for _, count := range []int{0, 1, maxScanMappings, maxScanMappings + 1, 10*maxScanMappings + 7} {
		maps := make([]Mapping, count)
		for i := range maps {
			start := uint64(i+1) * 3 * PageSize // with gaps
			maps[i] = Mapping{Start: start, End: start + PageSize}
		}

		var m Pagemap
		m.SetMappings(maps)
		end := uint64(count+2) * 3 * PageSize
		calls, next := 0, 0 // the first mapping that no call has walked
		for at := uint64(0); at < end; calls++ {
			to := m.nextCut(at, end)
			if to <= at {
				t.Fatalf("%d mappings: a call from %#x ends at %#x", count, at, to)
			}

			walked := 0
			for ; next < count && maps[next].Start < to; next++ {
				walked++
			}
			if walked > maxScanMappings {
				t.Errorf("%d mappings: a call walks %d", count, walked)
			}
			at = to
		}
		if most := count/maxScanMappings + 1; calls > most || next != count {
			t.Errorf("%d mappings: %d calls walk %d, want at most %d calls", count, calls, next,
				most)
		}
	}

	var m Pagemap
	m.SetMappings(make([]Mapping, 10*maxScanMappings))
	m.SetMappings(nil)
	if to := m.nextCut(0, 1<<40); to != 1<<40 {
		t.Errorf("a call ends at %#x by the mappings of an earlier reading", to)
	}
}
