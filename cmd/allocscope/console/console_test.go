package console

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/record"
)

func TestStatusLine(t *testing.T) {
	t.Run("no terminal", testPlainStatus)
	t.Run("no snapshot", testNoSnapshot)
}

// A slowWriter takes a line whenever it is allowed to.
type slowWriter struct {
	allowed chan struct{}
	mu      sync.Mutex
	text    bytes.Buffer
}

func (w *slowWriter) Write(data []byte) (int, error) {
	<-w.allowed
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(data)
}

func TestAsyncWriter(t *testing.T) {
	slow := &slowWriter{allowed: make(chan struct{})}
	b := newAsyncWriter(slow)
	b.flush() // nothing waits
	line := []byte("line\n")

	for range maxKeptLines + 5 {
		if n, err := b.Write(line); n != len(line) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}

	copy(line, "used ") // it is the caller's
	close(slow.allowed)
	for range 3 { // whatever the machine is busy with
		b.flush()
	}

	slow.mu.Lock()
	defer slow.mu.Unlock()
	if want := strings.Repeat("line\n", maxKeptLines) +
		"5 more lines were logged\n"; slow.text.String() != want {
		t.Errorf("%d bytes that end with %q", slow.text.Len(),
			slow.text.String()[max(0, slow.text.Len()-40):])
	}
}

func TestStatusWriter(t *testing.T) {
	var out bytes.Buffer
	to, before := New(&out), slog.Default()
	slog.SetDefault(to.Logger(slog.LevelInfo, ColorAuto))
	defer slog.SetDefault(before)
	var shown []string
	slog.Info("before")
	to.Redirect(func(line string) { shown = append(shown, line) })
	slog.Warn("one")
	slog.Error("two")
	slog.Info("three")
	if out.String() != "before\n" || !slices.Equal(shown, []string{
		"warn: one", "error: two",
		"three",
	}) {
		t.Errorf("prints %q and shows %q", out.String(), shown)
	}

	to.Resume()
	slog.Info("after")
	to.Resume()
	if want := "before\nwarn: one\nerror: two\nthree\nafter\n"; out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}

func testPlainStatus(t *testing.T) {
	var out bytes.Buffer
	s := NewStatusLine(New(&out))
	cost := 0.019
	overhead := &summary.Overhead{Slowdown: &cost, Limit: 0.03, Mode: growth.HeapBursts, Bursts: 3}

	snapshot := &growth.Snapshot{
		LiveObjects: 12345,
		Holdings:    []growth.Holding{{InuseBytes: 3 << 20}},
	}

	for second := range 25 {
		sample := growth.Sample{Elapsed: time.Duration(second) * time.Second, RSS: 1 << 30}
		s.Show(record.Progress{
			Sample: sample, Latest: snapshot, Overhead: overhead, End: 5 * time.Minute,
			Events: growth.Events{Allocations: uint64(second) * 1500, Frees: uint64(second) * 500},
			Losses: []growth.Loss{
				{Count: 2}, {Count: 5}, {Kind: growth.LossSiteStacks, Count: 9},
			},
		})
	}

	s.Quiet = true
	s.Show(record.Progress{Sample: growth.Sample{Elapsed: time.Hour}})
	s.Clear()
	rest := " of 5m  RSS 1.00 GiB  traced 3.00 MiB in 12.3 k samples  2000 events/s  drops 7  " +
		words.OverheadShort(overhead) + "\n"
	if want := "10s" + rest + "20s" + rest; out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}

func testNoSnapshot(t *testing.T) {
	var out bytes.Buffer
	s := NewStatusLine(New(&out))
	s.Show(record.Progress{Sample: growth.Sample{Elapsed: 10 * time.Second, RSS: 5 << 20}})
	unknown := growth.UnknownSample()
	unknown.Elapsed = 20 * time.Second
	s.Show(record.Progress{Sample: unknown})
	want := "10s  RSS 5.00 MiB  0 events/s  drops 0\n20s  0 events/s  drops 0\n"
	if out.String() != want {
		t.Errorf("prints %q, want %q", out.String(), want)
	}
}
