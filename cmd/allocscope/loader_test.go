package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A loader is testdata/loader.py, a trainer with DataLoader workers that leaks by one line.
type loader struct {
	*tracertest.Target
	t *testing.T
}

const loaderWorkers = 2

// A moment of a loader that has just made a step and stands still.
type moment struct {
	at      time.Time
	rss     int64 // by /proc/PID/status
	planted int64 // by the program itself
	free    int64 // by its allocator
	private int64 // of its workers, at rest, by /proc/PID/smaps_rollup
}

// startLoader starts the trainer, whose workers read so many labels and which keeps a note of so many bytes of each step, and lets it
// train until only what it leaks grows.
func startLoader(t *testing.T, labels, note int) loader {
	t.Helper()
	tracertest.NeedsRoot(t)
	l := loader{ready(tracertest.Start(t, "/usr/bin/python3", tracertest.Source("loader.py"), itoa(loaderWorkers), itoa(labels), itoa(note))), t}
	t.Cleanup(l.Hangup)
	l.train(60)
	return l
}

// train does so many steps, and says what holds after them.
func (l loader) train(steps int) moment {
	l.t.Helper()
	l.Say(itoa(steps))
	said := l.Await("done")
	var m moment
	var number int
	var seconds float64
	last := strings.Join(said[len(said)-2:], " ")
	if _, err := fmt.Sscanf(last, "step %d planted %d %f free %d", &number, &m.planted, &seconds, &m.free); err != nil {
		l.t.Fatalf("%q: %v", last, err)
	}
	m.at = time.UnixMilli(int64(seconds * 1000))
	m.rss = rssOf(l.t, l.PID())
	for _, pid := range childrenOf(l.t, l.PID()) {
		awaitState(l.t, pid, "S")
		m.private += rollupOf(l.t, pid)["Private_Dirty"]
	}
	return m
}

// rollupOf reads what the kernel sums over the pages of a process, in bytes.
func rollupOf(t *testing.T, pid int) map[string]int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int64)
	for line := range strings.Lines(string(raw)) {
		var name string
		var kib int64
		if n, _ := fmt.Sscanf(line, "%s %d kB", &name, &kib); n == 2 {
			sizes[strings.TrimSuffix(name, ":")] = kib << 10
		}
	}
	return sizes
}

// between is what holds at a moment between two others, if all grows evenly.
func between(moments []moment, at time.Time) moment {
	for i := range moments[1:] {
		a, b := moments[i], moments[i+1]
		if b.at.Before(at) && i+2 < len(moments) {
			continue
		}
		part := at.Sub(a.at).Seconds() / b.at.Sub(a.at).Seconds()
		along := func(from, to int64) int64 { return from + int64(part*float64(to-from)) }
		return moment{
			at: at, rss: along(a.rss, b.rss), planted: along(a.planted, b.planted), free: along(a.free, b.free),
			private: along(a.private, b.private),
		}
	}
	return moments[0]
}

// leakLine is the line that leaks, as a frame's text ends.
func leakLine(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(tracertest.Source("loader.py"))
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "# LEAK")
	if !found {
		t.Fatal("loader.py has no line that is marked as # LEAK")
	}
	return fmt.Sprintf("loader.py:%d)", strings.Count(before, "\n")+1)
}
