package tracer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
)

// launchTracker has the probes of the session's copy of the shim, which serve all programs below
// it, and makes these programs targets as they start.
type launchTracker struct {
	*source.Shim
	session *Session
	ring    *ringbuf.Reader // of starts
	starts  chan programStart
	lost    atomic.Uint64 // starts that the channel had no room for
	running sync.WaitGroup

	preparing sync.Mutex     // held while Hold is prepared
	waiting   []programStart // those that are not targets yet
	isHolding bool           // programs that start wait
	changed   uint64         // when that was changed last, which lets all go on: ns, CLOCK_MONOTONIC
	holding   duty.Limiter   // of the time for which programs wait
	forking   duty.Limiter   // of the time in which forks become targets at once
}

// A programStart is a program, or a fork of one, that has called the shim for the first time.
type programStart struct {
	pid    int
	at     uint64 // ns, CLOCK_MONOTONIC
	isFork bool   // which does not wait
}

func (p programStart) age() time.Duration { return time.Duration(kernel.Monotonic() - p.at) }

const (
	// maxStarts bounds the programs that wait to become targets.
	maxStarts = 1024
	// lateStart is the time after which a program may not have waited until it was a target.
	lateStart = shim.MaxHold * 4 / 5
	// settledAge is the age at which a program becomes a target though it does not wait.
	settledAge = time.Second
	// maxEnded bounds the targets that have ended and are in snapshots still: a trainer, and not
	// the programs that its script calls afterwards.
	maxEnded = 16
)

// open attaches to the session's copy of the shim, and starts the command. It returns once the
// command has called the shim, so that its libraries are mapped, or does not.
func (l *launchTracker) open(ctx context.Context) error {
	s := l.session
	var err error
	if l.ring, err = ringbuf.NewReader(s.kernel.Starting); err != nil {
		return fmt.Errorf("open the ring buffer of starts: %w", err)
	}
	l.running.Go(l.read)
	attached, err := source.AttachShim(s.kernel, s.Options.Launch.Shim)
	if err != nil {
		return fmt.Errorf("attach to the shim: %w", err)
	}
	l.Shim, s.probing.shim = attached, attached
	if err := s.probing.OpenHeap(false, s.Options.Interval); err != nil {
		return fmt.Errorf("probe the heap: %w", err)
	}
	command := s.Options.Launch
	if err := s.kernel.SetCommand(command.Command, command.UID); err != nil {
		return err
	}
	if err := l.Hold(); err != nil {
		return fmt.Errorf("hold the programs that start: %w", err)
	}
	l.isHolding, l.holding, l.forking = true, startLimit, startLimit

	if s.Options.PID, err = command.Start(ctx); err != nil {
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
func (l *launchTracker) awaitStart(ctx context.Context) {
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

// read keeps the starts of programs for run, until end. They have a ring buffer of their own, since
// the programs wait: the other one is read twenty times a second at most.
func (l *launchTracker) read() {
	for {
		record, err := l.ring.Read()
		if err != nil { // it is closed
			return
		}
		var event bpf.Event
		if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &event); err == nil {
			l.keep(programStart{int(event.Tgid), event.Time, event.Length != 0})
		}
	}
}

func (l *launchTracker) keep(p programStart) {
	select {
	case l.starts <- p:
	default:
		l.lost.Add(1)
	}
}

// run makes programs targets as they start, until the session ends.
func (l *launchTracker) run() {
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
		l.addDue()
	}
}

// end ends read and run.
func (l *launchTracker) end() {
	if l.ring != nil {
		_ = l.ring.Close()
	}
	l.running.Wait()
}

// addDue makes targets of the programs that wait to become one, as long as something is due.
func (l *launchTracker) addDue() {
	l.forking.Accrue(time.Now())
	for l.session.ctx.Err() == nil && l.addNext() {
	}

	if !l.isHolding {
		l.release(0)
	}
	l.retireEnded()
}

// addNext makes targets of the programs that are held, or of one that is not: a fork within the
// credit, or a program that still runs after a while, since most programs of a build have ended by
// then. It reports whether there was one.
func (l *launchTracker) addNext() bool {
	l.drain()
	if held, added := l.addHeld(); added {
		l.release(held)
		return true
	}

	p, isDue := l.take(func(p programStart) bool {
		return p.age() >= settledAge || p.isFork && l.forking.Credit() > 0
	})
	if !isDue {
		return false
	}
	began, isEarly := time.Now(), p.age() < settledAge
	l.add(p)
	if isEarly {
		l.forking.Spend(time.Since(began))
		l.forking.Accrue(time.Now())
	}
	return true
}

// drain takes all starts that have been noted.
func (l *launchTracker) drain() {
	for range len(l.starts) {
		l.waiting = append(l.waiting, <-l.starts)
	}
	kept := min(len(l.waiting), maxStarts)
	l.lost.Add(uint64(len(l.waiting) - kept))
	l.waiting = l.waiting[:kept]
}

// take removes the first start for which a function holds.
func (l *launchTracker) take(holds func(programStart) bool) (p programStart, found bool) {
	i := slices.IndexFunc(l.waiting, holds)
	if i < 0 {
		return programStart{}, false
	}

	p = l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	return p, true
}

// addHeld makes targets of the programs that are held, and of those that start meanwhile: they go
// on together. It returns how long the first has waited, and whether there was one.
func (l *launchTracker) addHeld() (held time.Duration, added bool) {
	var first *programStart // of those that wait
	for l.isHolding && held < lateStart {
		p, found := l.take(func(p programStart) bool { return !p.isFork })
		if !found {
			break
		}

		if !added {
			l.prepareRelease()
		}
		added = true
		if l.add(p) && first == nil {
			first = &p
		}
		if first != nil {
			held = min(first.age(), shim.MaxHold)
		}
		l.drain()
	}
	return held, added
}

// prepareRelease makes the next release short, while a program becomes a target.
func (l *launchTracker) prepareRelease() {
	if l.preparing.TryLock() {
		l.running.Go(func() {
			defer l.preparing.Unlock()
			_ = l.Prepare() // release takes longer
		})
	}
}

// retireEnded makes room for the next programs, while none of those that are targets waits.
func (l *launchTracker) retireEnded() {
	l.session.following.Lock()
	defer l.session.following.Unlock()
	l.session.targets.retireEnded(maxEnded)
}

// add makes a target of a program, unless that has ended: then its PID may be another's. It reports
// whether the program waits.
func (l *launchTracker) add(p programStart) (waits bool) {
	const tick = 10 * time.Millisecond
	age := p.age() // first, as this thread may have to wait for the age of the process
	if stat, err := process.ReadStat(p.pid); err != nil || stat.Age()+tick < age {
		return false
	}

	s := l.session
	s.following.Lock()
	defer s.following.Unlock()
	s.follower.addStarted(s.ctx, p.pid)
	waits = l.isHolding && !p.isFork && p.at > l.changed
	if t := s.targets.traced(p.pid); t != nil && waits && p.age() < lateStart {
		t.fromStart = true
	}
	return waits
}

// release lets the programs go on that have waited for so long, and has the next ones wait unless
// all have waited too much. If the kernel does not hold them again, they become targets late.
func (l *launchTracker) release(held time.Duration) {
	l.holding.Spend(held)
	l.holding.Accrue(time.Now())
	wasHolding := l.isHolding
	l.isHolding = mayHold(l.holding.Credit(), wasHolding) && l.Hold() == nil
	if wasHolding && !l.isHolding {
		_ = l.Release()
	}
	l.changed = kernel.Monotonic()
}

// startLimit is 3 s at once, and half a percent of the time in the long run. A build starts thousands
// of programs, and the caller of a compiler waits for each of them.
var startLimit = duty.Limiter{Share: 1.0 / 200, Burst: 3 * time.Second}

// mayHold reports whether programs may wait. After a refusal, they do so once the credit is enough
// for several.
func mayHold(credit time.Duration, wasHolding bool) bool {
	return credit >= startLimit.Burst/4 || wasHolding && credit > 0
}
