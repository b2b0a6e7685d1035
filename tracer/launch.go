package tracer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// launched has the probes of the session's copy of the shim, which are those of all programs below
// it, and makes these programs targets as they start.
type launched struct {
	*source.Shim
	session *Session
	starts  chan programStart
	lost    atomic.Uint64 // starts that the channel had no room for
	running sync.WaitGroup

	waiting   []programStart // programs that are not targets yet
	isHolding bool           // programs that start wait
	changed   uint64         // when that was changed last, which lets all go on: ns, CLOCK_MONOTONIC
	credit    holdCredit
}

// A programStart is a program that has called the shim for the first time.
type programStart struct {
	pid int
	at  uint64 // ns, CLOCK_MONOTONIC
}

func (p programStart) age() time.Duration { return time.Duration(kernel.Monotonic() - p.at) }

const (
	// maxStarts bounds the programs that wait to become targets.
	maxStarts = 1024
	// lateStart is the time after which a program may not have waited until it was a target.
	lateStart = shim.MaxHold * 4 / 5
	// maxEnded bounds the targets that have ended and are in snapshots still: a trainer, and not what
	// its script calls afterwards.
	maxEnded = 16
)

// launch attaches to the session's copy of the shim, and starts the command. It returns once the
// command has called the shim, so that its libraries are mapped, or does not.
func (s *Session) launch(ctx context.Context) error {
	attached, err := source.AttachShim(s.kernel, s.Options.Launch.Shim)
	if err != nil {
		return fmt.Errorf("attach to the shim: %w", err)
	}
	l := s.launched
	l.Shim, s.probing.shim = attached, attached
	if err := s.probing.OpenHeap(false, s.Options.Interval); err != nil {
		return fmt.Errorf("probe the heap: %w", err)
	}
	if err := l.Hold(); err != nil {
		return fmt.Errorf("hold the programs that start: %w", err)
	}
	l.isHolding, l.credit = true, holdCredit{maxHold, time.Now()}

	if s.Options.PID, err = s.Options.Launch.Start(ctx); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	err = s.openProcess()
	if errors.Is(err, process.ErrZombie) || errors.Is(err, process.ErrNotFound) {
		return fmt.Errorf("pid %d: %w", s.Options.PID, ErrExited)
	}
	if err != nil {
		return err
	}
	l.awaitStart(ctx)
	_ = s.Process.Refresh() // it executes the command now, unless that has ended
	return ctx.Err()
}

// awaitStart waits for the first program that starts.
func (l *launched) awaitStart(ctx context.Context) {
	limit := time.NewTimer(shim.MaxHold)
	defer limit.Stop()
	ended := make(chan struct{})
	defer close(ended)

	select {
	case first := <-l.starts:
		l.keep(first) // for run
	case <-limit.C: // it is static, say
	case <-l.session.Process.Exited(ended):
	case <-ctx.Done():
	}
}

// noteStart keeps the start of a program for run.
func (l *launched) noteStart(event bpf.Event) {
	l.keep(programStart{int(event.Tgid), event.Time})
}

func (l *launched) keep(p programStart) {
	select {
	case l.starts <- p:
	default:
		l.lost.Add(1)
	}
}

// run makes programs targets as they start, until the session ends.
func (l *launched) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-l.session.ctx.Done():
			return
		case next := <-l.starts:
			l.waiting = append(l.waiting, next)
		case <-tick.C:
		}
		for range len(l.starts) {
			l.waiting = append(l.waiting, <-l.starts)
		}
		l.adoptWaiting()
	}
}

// adoptWaiting makes targets of the programs that are held, which then go on together, and of those
// that are not and still run after a while: most programs of a build have ended by then.
func (l *launched) adoptWaiting() {
	const unheldAge = time.Second
	var adopted int
	var held time.Duration
	var young []programStart
	for _, p := range l.waiting {
		if !l.isHolding && p.age() < unheldAge {
			young = append(young, p)
			continue
		}
		held = max(held, l.adopt(p))
		adopted++
	}
	kept := min(len(young), maxStarts)
	l.lost.Add(uint64(len(young) - kept))
	l.waiting = young[:kept]

	if adopted > 0 || !l.isHolding {
		l.release(held)
		l.retireEnded()
	}
}

// retireEnded makes room for the next programs, while none of those that are targets waits.
func (l *launched) retireEnded() {
	l.session.following.Lock()
	defer l.session.following.Unlock()
	l.session.retireEnded(maxEnded)
}

// adopt makes a target of a program. It returns how long the program has waited; forks do not wait.
func (l *launched) adopt(p programStart) (waited time.Duration) {
	s := l.session
	s.following.Lock()
	defer s.following.Unlock()
	s.follower.adopt(s.ctx, p.pid)
	if !l.isHolding || p.at <= l.changed || s.follower.isForked(p.pid) {
		return 0
	}
	waited = min(p.age(), shim.MaxHold)
	if t := s.targets.traced(p.pid); t != nil && waited < lateStart {
		t.fromStart = true
	}
	return waited
}

// release lets the programs go on that have waited for so long, and has the next ones wait unless
// all have waited too much. If the kernel does not hold them again, they become targets late.
func (l *launched) release(held time.Duration) {
	l.credit.spend(held, time.Now())
	wasHolding := l.isHolding
	l.isHolding = l.credit.allows(wasHolding)
	switch {
	case l.isHolding:
		l.isHolding = l.Hold() == nil
	case wasHolding:
		_ = l.Release()
	}
	l.changed = kernel.Monotonic()
}

// A holdCredit is for how long programs may be held: maxHold in all at once, and holdShare of the
// time in the long run. A build starts thousands, and what calls a compiler waits for each of them.
type holdCredit struct {
	left time.Duration
	at   time.Time
}

const (
	maxHold   = 3 * time.Second
	holdShare = 1.0 / 200
)

// spend takes a time that programs have waited, and adds what has accrued until now.
func (c *holdCredit) spend(held time.Duration, now time.Time) {
	accrued := time.Duration(holdShare * float64(now.Sub(c.at)))
	c.left, c.at = min(maxHold, c.left-held+accrued), now
}

// allows reports whether programs may be held. They are held again once several may be.
func (c *holdCredit) allows(isHolding bool) bool {
	return c.left >= maxHold/4 || isHolding && c.left > 0
}
