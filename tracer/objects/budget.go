package objects

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/allocscope/allocscope/tracer/process"
)

// A budget is the time that a census or a search may take: CPU time, and time until the deadline of
// its context. A nil budget is without limit.
type budget struct {
	ctx    context.Context
	ends   time.Duration // CPU time at which it is spent; 0: never
	until  time.Time     // zero: never
	calls  uint
	isOver bool
}

// callsAtOnce is how many calls of isSpent one reading of the clocks is good for. Between two calls
// lie microseconds of work.
const callsAtOnce = 64

// noLimit is more CPU time than any process takes.
const noLimit = math.MaxInt64

// newBudget returns the budget of work that begins now.
func newBudget(ctx context.Context, limit time.Duration) *budget {
	b := &budget{ctx: ctx}
	if now := process.OwnCPUTime(); limit < noLimit-now {
		b.ends = now + limit
	}
	b.until, _ = ctx.Deadline()
	return b
}

// most returns the budget of the first four fifths of the time: the rest is for the results.
func (b *budget) most() *budget {
	part := *b
	if b.ends != 0 {
		now := process.OwnCPUTime()
		part.ends = now + (b.ends-now)*4/5
	}
	if !b.until.IsZero() {
		part.until = time.Now().Add(time.Until(b.until) * 4 / 5)
	}
	return &part
}

// part returns the budget of a part of the work that begins now, and takes so much CPU time at
// most.
func (b *budget) part(limit time.Duration) *budget {
	part := *b
	if end := process.OwnCPUTime() + limit; b.ends == 0 || end < b.ends {
		part.ends = end
	}
	return &part
}

// isSpent reports whether the time is used up. It is cheap enough for each reference.
func (b *budget) isSpent() bool {
	if b == nil || b.isOver {
		return b != nil
	}
	if b.calls++; b.calls%callsAtOnce != 0 {
		return false
	}
	return b.check()
}

// check is isSpent by the clocks of now, for work of milliseconds.
func (b *budget) check() bool {
	if b == nil {
		return false
	}
	b.isOver = b.isOver || b.ctx.Err() != nil ||
		!b.until.IsZero() && time.Now().After(b.until) ||
		b.ends != 0 && process.OwnCPUTime() >= b.ends
	return b.isOver
}

// canceled returns the error of a context that was canceled: no caller waits for a result. At its
// deadline the caller waits for the results so far.
func (b *budget) canceled() error {
	if err := b.ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}
