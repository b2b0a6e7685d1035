package record

import (
	"sync/atomic"
	"time"
)

// minExtension is the least by which a trace is extended at a time.
const minExtension = 5 * time.Minute

// A Deadline is when a trace ends, at the latest. Its methods may be called from any goroutine.
type Deadline struct {
	at    atomic.Int64  // Elapsed; 0: without end
	first time.Duration // duration of the trace, by its options
}

// set sets the end of a trace that began at a time.
func (d *Deadline) set(began time.Duration, o *Options) {
	d.first = o.Duration
	if length := o.longest(); length != 0 {
		d.at.Store(int64(began + length))
	}
}

// At returns Elapsed when the trace ends, at the latest; 0: it ends with its context.
func (d *Deadline) At() time.Duration { return time.Duration(d.at.Load()) }

// Extension is by how much Extend extends the trace: half of its first duration, or five minutes if
// that is more. 0: it has no end.
func (d *Deadline) Extension() time.Duration {
	if d.At() == 0 {
		return 0
	}
	return max(minExtension, d.first/2)
}

// Extend moves the end of a trace that has one.
func (d *Deadline) Extend() {
	if by := d.Extension(); by != 0 {
		d.at.Add(int64(by))
	}
}
