package conclude

import (
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// TestContainer has a container of a traced process, a sidecar and their files at two moments.
func TestContainer(t *testing.T) {
	row := func(kind growth.ContainerKind, key string, pid int, bytes int64) growth.ContainerRow {
		return growth.ContainerRow{Kind: kind, Key: key, PID: pid, File: key, Bytes: bytes * mib}
	}
	first := &growth.Container{Charged: 1000 * mib, Rows: []growth.ContainerRow{
		row(growth.ContainerAnonymous, "1", 1, 600), row(growth.ContainerAnonymous, "2", 2, 100),
		row(growth.ContainerShared, "/dev/shm/own", 1, 200),
		row(growth.ContainerShared, "/dev/shm/gone", 0, 50),
		row(growth.ContainerRest, "", 0, 50),
	}}
	last := &growth.Container{Charged: 2000 * mib, Rows: []growth.ContainerRow{
		row(growth.ContainerAnonymous, "1", 1, 600), row(growth.ContainerAnonymous, "2", 2, 170),
		row(growth.ContainerShared, "/dev/shm/own", 1, 200), row(growth.ContainerSockets, "", 0, 70),
		row(growth.ContainerCache, "", 0, 900), row(growth.ContainerRest, "", 0, 60),
	}}
	for i := range maxContainerRows + 5 { // small ones
		last.Rows = append(last.Rows, row(growth.ContainerAnonymous, fmt.Sprint(10+i), 10+i, 0))
		last.Rows[len(last.Rows)-1].Bytes = 4096
	}
	for i := range maxContainerRows + 5 { // and small files of the traced process
		last.Rows = append(last.Rows, row(growth.ContainerShared, fmt.Sprint("/memfd:", i), 1, 0))
		last.Rows[len(last.Rows)-1].Bytes = 4096
	}
	last.Charged += 2 * (maxContainerRows + 5) * 4096

	trace := traceOf(member{1, growth.RoleTrainer, true, flat(600)})
	trace.Container = growth.Containers{First: first, Last: last}
	c := conclude(trace).Container

	var start, end int64
	small := make(map[growth.ContainerKind]int)
	for i := range c.Rows {
		r := &c.Rows[i]
		start += r.Start
		end += r.End
		small[r.Kind] += r.Count
		if r.InJob != (r.PID == 1) {
			t.Errorf("in the job: %+v", r)
		}
	}
	if start != first.Charged || end != last.Charged {
		t.Errorf("rows sum to %d and %d bytes, want %d and %d", start, end, first.Charged, last.Charged)
	}
	// Of 15 processes and 15 files, the largest eight have rows.
	if small[growth.ContainerAnonymous] != 7 || small[growth.ContainerShared] != 7 {
		t.Errorf("small ones: %v, want 7 of each", small)
	}

	// Beside the traced process: the sidecar and the sockets grow, the cache is large. Files of the
	// traced process do not count, nor deleted ones.
	var said []growth.ContainerKind
	for _, r := range c.Beside() {
		said = append(said, r.Kind)
	}
	want := []growth.ContainerKind{
		growth.ContainerAnonymous, growth.ContainerSockets, growth.ContainerCache,
	}
	if fmt.Sprint(said) != fmt.Sprint(want) {
		t.Errorf("beside the job: %v, want %v", said, want)
	}
}

// TestBesideGrows names the process that grows, not the largest one.
func TestBesideGrows(t *testing.T) {
	row := func(pid int, start, end int64) ContainerRow {
		return ContainerRow{
			ContainerRow: growth.ContainerRow{Kind: growth.ContainerAnonymous, PID: pid},
			Start:        start * mib, End: end * mib,
		}
	}
	c := Container{Last: &growth.Container{Charged: 1000 * mib}, Rows: []ContainerRow{
		row(8, 500, 500), row(9, 100, 200), row(10, 90, 90),
	}}
	if got := c.Beside(); len(got) != 1 || got[0].PID != 9 || got[0].Delta() != 100*mib {
		t.Errorf("%+v, want PID 9", got)
	}
	if c.Rows[1].End = 100 * mib; c.Beside()[0].PID != 8 {
		t.Errorf("%+v, want the largest, PID 8", c.Beside())
	}
}
