package fleet

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

// findAll finds new processes until ctx ends. A process that does not answer holds up this alone.
func (a *Agent) findAll(ctx context.Context) {
	ticker := time.NewTicker(a.options.period(findPeriod))
	defer ticker.Stop()
	for began := time.Now(); ; {
		a.findOnce()
		if time.Since(began) > savedTime {
			a.mu.Lock()
			clear(a.saved)
			a.mu.Unlock()
		}

		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (a *Agent) findOnce() {
	a.mu.Lock()
	p, images := a.watched.places(a.most, a.running)
	a.mu.Unlock()
	isWatched := func(p tree.Arrival) bool {
		image, ok := images[processKey{p.PID, p.StartTicks}]
		return ok && image == p.Image
	}

	found, ignored, err := a.finder.scan(isWatched, p)
	var added []*watchedProcess
	for _, c := range found {
		if _, isWatched := images[processKey{c.PID, c.StartTicks}]; isWatched {
			a.finder.later(c) // as another program: check sees that, and how old the process is
			continue
		}
		if c.replaces != nil {
			a.giveUp(c.replaces)
			ignored++
		}
		added = append(added, a.newProcess(c))
	}

	a.mu.Lock()
	a.findErr = err
	if ignored > a.ignored {
		a.report(Event{Kind: EventCrowded})
	}

	a.ignored = ignored
	a.mu.Unlock()
	for _, w := range added {
		a.add(w)
	}
}

// places returns the places of the watched processes, of which there are so many, and their
// programs. A process that is traced keeps its place.
func (l watchList) places(
	most int, running *traceRun,
) (*places, map[processKey]process.Image) {
	p := &places{free: most, counts: make(map[string]int)}
	images := make(map[processKey]process.Image, len(l))
	for _, w := range l {
		if w.replaced {
			continue
		}
		images[w.key] = w.image
		p.free--
		p.counts[w.owner]++
		if running == nil || running.key != w.key {
			p.taken = append(p.taken, place{w, w.owner, w.last.Anonymous})
		}
	}

	return p, images
}

// giveUp ends the watching of a process for another one. It may be watched later.
func (a *Agent) giveUp(w *watchedProcess) {
	a.mu.Lock()
	w.replaced = true
	a.mu.Unlock()
	a.finder.waiting[w.key.pid] = &waitingProcess{Arrival: w.arrival, ignored: true}
}

// newProcess begins to watch a process that was found.
func (a *Agent) newProcess(c candidate) *watchedProcess {
	w := &watchedProcess{
		key: processKey{c.PID, c.StartTicks}, process: c.process, start: c.Start, image: c.Image,
		arrival: c.Arrival, owner: c.owner,
		limits: process.NewSystemMemoryReader(), identity: c.identity, command: c.process.Command(),
		labels: c.labels, last: growth.UnknownSample(),
	}

	w.begin(0, a.criteria, a.options.Speed)
	return w
}

// add adds a process, with its history of the agent before.
func (a *Agent) add(w *watchedProcess) {
	a.mu.Lock()
	saved, isKnown := a.saved[w.key]
	isKnown = isKnown && saved.Image == w.image.String()
	w.history.born = a.executed[w.key]
	delete(a.saved, w.key)
	delete(a.executed, w.key)
	a.mu.Unlock()

	kind := EventAppeared
	if isKnown {
		kind = EventRestored
		w.restore(saved)
		if saved.Folder != "" {
			if trace, _, f, err := a.directory.readTrace(w.key, saved.Folder); err == nil {
				w.trace = trace
				f.Close()
			}
		}
	}

	if s, err := w.process.Sample(); err == nil {
		w.last = s
	}

	event := w.event(kind) // before another goroutine samples it

	a.mu.Lock()
	a.watched = append(a.watched, w)
	a.mu.Unlock()
	a.report(event)
}

// sampleAll samples and judges all processes until ctx ends.
func (a *Agent) sampleAll(ctx context.Context) {
	period := a.options.period(samplePeriod)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	checkEvery := max(1, int(a.options.period(checkPeriod)/period))
	saveAt := time.Now().Add(a.options.period(savePeriod))

	for tick := 0; ; tick++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		a.mu.Lock()
		all := slices.Clone(a.watched)
		a.mu.Unlock()
		now := bootTime()
		for i, w := range all {
			if !a.sample(w, now) {
				continue
			}
			if (tick+i)%checkEvery == 0 || w.isDue() || w.mayBeFull(a.options.NearLimit) {
				a.check(w, now)
			}
			if w.isDue() {
				a.judge(w)
			}
		}
		a.mu.Lock()
		a.sampledAt = time.Now()
		unsaved := a.unsaved
		a.mu.Unlock()
		a.decide()

		if unsaved || time.Now().After(saveAt) {
			saveAt = time.Now().Add(a.options.period(savePeriod))
			a.reportError(a.save())
			a.reportError(a.pusher.newProblem())
		}
	}
}

// bootTime is the time since the boot, suspended or not: the clock of starts.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // the clock always exists
	return time.Duration(now.Nano())
}

// sample samples a process; false: it has ended, or gives up its place.
func (a *Agent) sample(w *watchedProcess, now time.Duration) bool {
	a.mu.Lock()
	isReplaced := w.replaced
	a.mu.Unlock()
	if isReplaced {
		a.remove(w, EventReplaced)
		return false
	}

	status, err := w.process.Status()
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && status.RSS == growth.Unknown: // or a zombie
		a.remove(w, EventEnded)
		return false
	case err != nil:
		return false
	}

	s := growth.UnknownSample()
	s.RSS, s.Swap = status.RSS, status.Swap
	s.Anonymous, s.File, s.Shared = status.Anonymous, status.File, status.Shared
	a.mu.Lock()
	w.last = s
	w.history.add((now - w.start).Seconds(), s)
	a.mu.Unlock()
	return true
}

// check reads the limits of a process, and whether it still executes its program.
func (a *Agent) check(w *watchedProcess, now time.Duration) {
	stat, err := w.process.Stat()
	if err == nil && stat.Image != w.image && !stat.Image.IsZero() {
		// The next scans for new processes compare it with the rules again.
		a.mu.Lock()
		if len(a.executed) >= maxExecuted {
			clear(a.executed)
		}
		a.executed[w.key] = (now - w.start).Seconds()
		a.mu.Unlock()
		a.remove(w, EventExecuted)
		return
	}

	memory := w.limits.Read(w.process)
	headroom := memory.Headroom().Nearest(w.process.Headroom())
	a.mu.Lock()
	w.headroom = headroom
	isTraced := a.running != nil && a.running.key == w.key
	begins := w.fill(useOf(memory, headroom, privateOf(w.last)), a.options.NearLimit, isTraced)
	event := w.event(EventFull)
	a.mu.Unlock()
	if begins {
		a.report(event)
	}
}

// judge judges a process, and reports the changes.
func (a *Agent) judge(w *watchedProcess) {
	judged, found := w.history.judge(w.headroom, a.criteria)
	a.mu.Lock()
	change := w.judge(judged, found, a.options.Speed)
	event := w.event(EventTurned)
	event.Before = change.before
	a.mu.Unlock()

	switch {
	case change.isNewStatus:
		a.report(event)
	case change.isNearLimit:
		event.Kind = EventNearLimit
		a.report(event)
	}
}

// remove makes a process one that is not watched.
func (a *Agent) remove(w *watchedProcess, kind EventKind) {
	a.mu.Lock()
	a.watched = slices.DeleteFunc(a.watched, func(other *watchedProcess) bool { return other == w })
	event := w.event(kind)
	if kind == EventEnded {
		if event.OOM = a.kills.of(w.key.pid); event.OOM != nil {
			a.oomKills++
		}
	}
	a.mu.Unlock()
	w.close()
	a.report(event)
}

// find returns a watched process; nil: it is none any more.
func (l watchList) find(key processKey) *watchedProcess {
	for _, w := range l {
		if w.key == key {
			return w
		}
	}

	return nil
}
