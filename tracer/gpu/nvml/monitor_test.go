package nvml

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A gate blocks calls until it is opened, and counts them.
type gate struct {
	entered atomic.Int32
	open    chan struct{}
}

func (g *gate) enter() {
	g.entered.Add(1)
	<-g.open
}

// awaitIdle waits until NVML has answered.
func awaitIdle(m *Monitor) {
	m.timeout = longTimeout
	for m.busy {
		m.poll()
	}
}

// slowDriver starts when its gate opens.
type slowDriver struct {
	fakeDriver
	gate gate
}

func (s *slowDriver) start() error {
	s.gate.enter()
	return s.fakeDriver.start()
}

func TestOpenSlowDriver(t *testing.T) {
	t.Parallel()
	d := &slowDriver{gate: gate{open: make(chan struct{})}}
	m := tracertest.Must(open(d, time.Millisecond))(t)
	if r := m.Read(); !strings.Contains(r.Reason, "has not answered") || r.Driver != "" {
		t.Errorf("%+v", r)
	}

	close(d.gate.open)
	awaitIdle(m)
	if r := m.Read(); r.Reason != "" || r.Driver != "570.1" {
		t.Errorf("%+v", r)
	}
	if err := m.Close(); err != nil || d.stops != 1 {
		t.Errorf("%v, %d stops", err, d.stops)
	}
}

func TestMonitorLateReading(t *testing.T) {
	t.Parallel()
	d := fake(&fakeDevice{id: "GPU-a", used: 4, total: 9})
	m := mustOpen(t, d)
	if r := m.Read(); r.Reason != "" {
		t.Fatal(r.Reason)
	}

	g := gate{open: make(chan struct{})}
	d.onCount = g.enter
	m.timeout = time.Millisecond
	for n := range 2 * maxStaleReadings {
		r := m.Read()
		if !strings.Contains(r.Reason, "has not answered") || len(r.GPUs) != 1 ||
			r.GPUs[0].UUID != "GPU-a" {
			t.Fatalf("%+v", r)
		}

		known := r.GPUs[0].Used != growth.Unknown
		if known != (n < maxStaleReadings) ||
			known != strings.Contains(r.Reason, "figures of the reading before") {
			t.Errorf("reading %d: %+v", n, r)
		}
	}
	if n := g.entered.Load(); n > 1 {
		t.Errorf("%d readings at once", n)
	}

	close(g.open)
	awaitIdle(m)
	if r := m.Read(); r.Reason != "" || r.GPUs[0].Used != 4 {
		t.Errorf("%+v", r)
	}
}

func TestMonitorClose(t *testing.T) {
	t.Parallel()
	d := fake()
	m := tracertest.Must(open(d, longTimeout))(t)

	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if r := m.Read(); d.stops != 1 || r.Reason == "" {
		t.Errorf("%d stops, %+v", d.stops, r)
	}
}

func TestMonitorCloseWhileDriverHangs(t *testing.T) {
	t.Parallel()
	g := gate{open: make(chan struct{})}
	defer close(g.open)
	m := tracertest.Must(open(&fakeDriver{onCount: g.enter}, longTimeout))(t)

	m.timeout = time.Millisecond
	m.Read()
	if err := m.Close(); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v, want an error for a driver that hangs", err)
	}
}
