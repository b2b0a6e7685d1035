package record

import "time"

// minExtension is the least by which a trace is extended at a time.
const minExtension = 5 * time.Minute

// setEnd sets the end by the options.
func (r *Recorder) setEnd() {
	if length := r.options.longest(); length != 0 {
		r.end.Store(int64(r.began + length))
	}
}

// End returns Elapsed when the trace ends, at the latest; 0: it ends by Ctrl-C.
func (r *Recorder) End() time.Duration { return time.Duration(r.end.Load()) }

// Extension is by how much Extend extends the trace: half of its first duration, or five minutes if
// that is more. 0: it has no end.
func (r *Recorder) Extension() time.Duration {
	if r.End() == 0 {
		return 0
	}
	return max(minExtension, r.options.Duration/2)
}

// Extend moves the end of a trace that has one. It may be called from any goroutine.
func (r *Recorder) Extend() {
	if by := r.Extension(); by != 0 {
		r.end.Add(int64(by))
	}
}
