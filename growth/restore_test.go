package growth

import (
	"testing"
	"time"
)

// earlierTrace is ten seconds of a process that leaks, seen once a second.
func earlierTrace(start int64) ([]Row, []EarlierProcess) {
	p := EarlierProcess{Member: Member{
		Process: Process{PID: 7, Start: start, Born: -time.Hour}, Traced: true,
	}}
	var rows []Row
	for second := range 10 {
		s := Sample{
			Elapsed: time.Duration(second) * time.Second, RSS: int64(100 + second), Steps: int64(second),
			Tensors: 5, TensorBytes: 6, CudaDriver: 7, Pinned: 8, CudaReserved: 9,
		}
		p.Timeline = append(p.Timeline, s)
		rows = append(rows, Row{Sample: s, Tree: Tree{Processes: 4, RSS: 999}})
	}
	return rows, []EarlierProcess{p}
}

// later is a sample of the process at a time, when it was born is known to a tick.
func later(second int, start, rss int64) TreeSample {
	elapsed := time.Duration(second) * time.Second
	return TreeSample{
		Elapsed: elapsed,
		Members: []Member{{
			Process: Process{PID: 7, Start: start, Born: -time.Hour + 7*time.Millisecond},
			Traced:  true, From: 100 * time.Second,
		}},
		Processes: []ProcessSample{{PID: 7, Sample: Sample{Elapsed: elapsed, RSS: rss}}},
	}
}

func TestRestore(t *testing.T) {
	t.Run("the same process goes on", func(t *testing.T) {
		var h History
		h.Restore(earlierTrace(1234))
		h.Add(later(100, 1234, 200))
		h.Add(later(101, 1234, 201))

		main := h.Main()
		if len(h.Processes) != 1 || len(main.Timeline) != 12 || len(h.Rows) != 12 {
			t.Fatalf("%d processes, %d samples, %d rows; want 1, 12, 12", len(h.Processes),
				len(main.Timeline), len(h.Rows))
		}
		if main.First != 0 || main.From != 100*time.Second || main.Timeline.RSSAt(0) != 100 {
			t.Errorf("first %s, from %s, RSS %d at the start", main.First, main.From,
				main.Timeline.RSSAt(0))
		}
		if s := main.Timeline.Series(); s.X[9] != 9 || s.X[10] != 100 {
			t.Errorf("X %v, want a gap from 9 to 100", s.X)
		}
	})

	t.Run("another process begins again", func(t *testing.T) {
		var h History
		h.Restore(earlierTrace(1234))
		h.Add(later(100, 4321, 200))
		if len(h.Processes) != 2 || h.Main().First != 100*time.Second {
			t.Errorf("%d processes, the main one from %s", len(h.Processes), h.Main().First)
		}
	})

	t.Run("rows are those of the earlier trace", func(t *testing.T) {
		var h History
		h.Restore(earlierTrace(1234))
		if tree := h.Rows[3].Tree; tree.Processes != 4 || tree.RSS != 999 {
			t.Errorf("tree %+v, want that of the file, with the workers", tree)
		}
	})

	t.Run("what counts since tracing started is unknown", func(t *testing.T) {
		var h History
		h.Restore(earlierTrace(1234))
		for _, s := range []Sample{h.Rows[3].Sample, h.Main().Timeline[3]} {
			if s.Tensors != Unknown || s.TensorBytes != Unknown || s.CudaDriver != Unknown ||
				s.Pinned != Unknown || s.CudaReserved != 9 || s.Steps != 3 {
				t.Errorf("%+v", s)
			}
		}
		if steps := h.Main().LastSteps(); steps != 9 {
			t.Errorf("%d steps at the end, want 9", steps)
		}
	})
}
