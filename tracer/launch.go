package tracer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

	isHolding bool // programs that start wait
	held      int  // how often they have been let go on
}

// A programStart is a program that has called the shim for the first time.
type programStart struct {
	pid int
	at  time.Time
}

const (
	// maxHeld bounds how often programs are held until they are targets: a build starts thousands.
	maxHeld = 32
	// holdTime is how long the shim waits at most.
	holdTime = 500 * time.Millisecond
	// releaseTime is how long no program is held, so that those that wait go on. They check each
	// millisecond.
	releaseTime = 5 * time.Millisecond
	// maxStarts bounds the programs that wait to become targets.
	maxStarts = 1024
)

// launch attaches to the session's copy of the shim, and starts the command. It returns once the
// command has called the shim, so that its libraries are mapped, or does not.
func (s *Session) launch(ctx context.Context) error {
	shim, err := source.AttachShim(s.kernel, s.Options.Launch.Shim)
	if err != nil {
		return fmt.Errorf("attach to the shim: %w", err)
	}
	l := &launched{Shim: shim, session: s, starts: make(chan programStart, maxStarts)}
	s.launched = l
	s.events.started = l.noteStart

	s.probing.shim = shim
	if err := s.probing.OpenHeap(false, s.Options.Interval); err != nil {
		return fmt.Errorf("probe the heap: %w", err)
	}
	if err := shim.Hold(true); err != nil {
		return fmt.Errorf("hold the programs that start: %w", err)
	}
	l.isHolding = true

	if s.Options.PID, err = s.Options.Launch.Start(ctx); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	if err := s.openProcess(); err != nil {
		return err
	}
	l.awaitStart(ctx)
	return ctx.Err()
}

// awaitStart waits for the first program that starts.
func (l *launched) awaitStart(ctx context.Context) {
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	ended := make(chan struct{})
	defer close(ended)

	select {
	case first := <-l.starts:
		l.starts <- first // for run
	case <-limit.C: // it is static, say
	case <-l.session.Process.Exited(ended):
	case <-ctx.Done():
	}
}

// noteStart keeps the start of a program for run.
func (l *launched) noteStart(pid uint32) {
	select {
	case l.starts <- programStart{int(pid), time.Now()}:
	default:
		l.lost.Add(1)
	}
}

// run makes programs targets as they start, until the session ends. Those that have started
// meanwhile go on together.
func (l *launched) run() {
	for {
		select {
		case <-l.session.ctx.Done():
			return
		case next := <-l.starts:
			l.adopt(next)
		}
		for range len(l.starts) {
			l.adopt(<-l.starts)
		}
		l.release()
	}
}

func (l *launched) adopt(p programStart) {
	s := l.session
	s.following.Lock()
	defer s.following.Unlock()
	s.follower.adopt(s.ctx, p.pid)
	if t := s.targets.traced(p.pid); t != nil && l.isHolding && time.Since(p.at) < holdTime {
		t.fromStart = true
	}
}

// release lets the programs that wait go on, and has the next ones wait while there were few. If the
// kernel does not hold them again, they become targets a little late.
func (l *launched) release() {
	if !l.isHolding {
		return
	}
	err := l.Hold(false)
	l.held++
	if err == nil && l.held < maxHeld {
		time.Sleep(releaseTime)
		err = l.Hold(true)
	}
	l.isHolding = err == nil && l.held < maxHeld
}
