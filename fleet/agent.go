package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	samplePeriod = time.Second
	// findPeriod is the time between two scans for new processes, and checkPeriod that between two
	// readings of the limits of a process, and of the program that it executes.
	findPeriod  = 5 * time.Second
	checkPeriod = 15 * time.Second
	// savePeriod is what a killed agent loses at most.
	savePeriod = time.Minute
	// savedTime is how long the history of a process that is not found again is kept.
	savedTime = 10 * time.Minute
	// lateTime is how late a sample may be before the agent says that it does not do its work.
	lateTime = time.Minute
)

// An Agent watches the processes of a node, and traces those that leak. It implements serve.Source.
type Agent struct {
	options    Options
	node       string
	executable string // that traces
	criteria   verdict.Criteria
	directory  *directory
	pusher     *push.Pusher // nil: nothing is pushed
	finder     *finder
	bootID     string
	done       chan struct{} // closed when the agent ends

	mu       sync.Mutex
	watched  []*watched
	ignored  int
	running  *running // nil: no trace runs
	ending   bool
	tracesAt []time.Time
	traces   map[metrics.TraceOutcome]uint64
	// folderBytes is the size of the kept folders.
	folderBytes int64
	// saved are the processes of the agent before that were not found again yet.
	saved   map[processKey]savedProcess
	resumed *savedTrace
	// sampledAt is when all processes were sampled last, and problem why the agent does not do its
	// work; nil: it does.
	sampledAt time.Time
	findErr   error
	saveErr   error
}

// New opens an agent. It continues the histories of the one before. The error wraps ErrInUse if that
// still runs.
func New(options Options) (*Agent, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	rules, err := newMatchers(options.Rules)
	if err != nil {
		return nil, err
	}
	boot, err := process.BootID()
	if err != nil {
		return nil, err
	}

	a := &Agent{
		options: options, node: nodeName(), executable: "/proc/self/exe", bootID: boot,
		criteria: verdict.InSeconds().Faster(options.Speed).Repeated(),
		finder:   newFinder(rules, options.MinRSS, options.Speed),
		done:     make(chan struct{}), sampledAt: time.Now(),
		traces: make(map[metrics.TraceOutcome]uint64),
		saved:  make(map[processKey]savedProcess),
	}
	if a.directory, err = openDirectory(options.Directory); err != nil {
		return nil, err
	}
	if options.Push != nil {
		to := *options.Push
		if to.Spool == "" {
			to.Spool = filepath.Join(a.directory.path, spoolFolder)
		}
		if a.pusher, err = push.Open(to); err != nil {
			a.directory.close()
			return nil, fmt.Errorf("push profiles: %w", err)
		}
	}
	a.load()
	return a, nil
}

// check refuses what an agent cannot do.
func (o *Options) check() error {
	switch {
	case o.Directory == "":
		return errors.New("the agent has no directory")
	case o.Keep < 1 || o.Keep > maxKept/2:
		return fmt.Errorf("%d folders are to be kept: write 1 to %d", o.Keep, maxKept/2)
	case o.KeepBytes < 1 || o.MinRSS < 0:
		return errors.New("a size is negative, or 0")
	case o.Duration < time.Second || o.Duration > 24*time.Hour:
		return fmt.Errorf("a trace of %s is shorter than 1s, or longer than a day", o.Duration)
	case o.TraceEvery < o.Duration:
		return fmt.Errorf("a trace of %s is longer than the time between two, %s", o.Duration, o.TraceEvery)
	case o.TracesPerDay < 0 || o.TracesPerDay > maxTracesPerDay:
		return fmt.Errorf("%d traces a day: write 0 to %d", o.TracesPerDay, maxTracesPerDay)
	case !(o.Speed > 0):
		return errors.New("the speed is not positive")
	}
	return nil
}

// nodeName is the name of the node, as identities have it.
func nodeName() string {
	self, err := process.OpenAny(os.Getpid())
	if err != nil {
		return ""
	}
	defer self.Close()
	return tree.IdentityOf(self).Node
}

// load reads the state of the agent before.
func (a *Agent) load() {
	s, err := a.directory.readState()
	switch {
	case errors.Is(err, errNoState):
		return
	case err != nil:
		event := Event{Kind: EventStateDamaged, Err: err}
		if event.Folder, err = a.directory.moveDamaged(); err != nil {
			event = Event{Kind: EventError, Err: errors.Join(event.Err, plain(err))}
		}
		a.report(event)
		return
	}
	for _, p := range s.Processes {
		a.saved[processKey{p.PID, p.StartTicks}] = p
	}
	a.tracesAt, a.resumed = s.TracesAt, s.Running
}

// Close releases what New has opened.
func (a *Agent) Close() error {
	var err error
	if a.pusher != nil {
		err = a.pusher.Close()
	}
	for _, w := range a.watched {
		w.close()
	}
	a.directory.close()
	return err
}

func (w *watched) close() {
	w.process.Close()
	w.limits.Close()
}

func (a *Agent) report(e Event) {
	if a.options.Report != nil {
		a.options.Report(e)
	}
}

// period is a period of a real trainer, for processes that live faster.
func (a *Agent) period(d time.Duration) time.Duration {
	return max(100*time.Millisecond, time.Duration(float64(d)/a.options.Speed))
}

// Run watches until ctx ends. Then it ends a trace that runs, and saves the state.
func (a *Agent) Run(ctx context.Context) error {
	a.retain()
	var wg sync.WaitGroup
	wg.Go(func() { a.findAll(ctx) })
	if a.pusher != nil {
		wg.Go(func() {
			if err := a.pusher.Run(ctx); err != nil {
				a.report(Event{Kind: EventError, Err: fmt.Errorf("push profiles: %w", err)})
			}
		})
	}
	if a.resumed != nil {
		wg.Go(func() { a.resume(ctx, *a.resumed) })
	}

	a.sampleAll(ctx)
	a.endTrace()
	wg.Wait()
	return a.save()
}

// endTrace ends the trace that runs, and waits for its files.
func (a *Agent) endTrace() {
	a.mu.Lock()
	a.ending = true
	r := a.running
	a.mu.Unlock()
	close(a.done)
	if r == nil {
		return
	}
	select {
	case <-r.ended:
	case <-time.After(endTime):
	}
}

// findAll finds new processes until ctx ends. A process that does not answer holds up this alone.
func (a *Agent) findAll(ctx context.Context) {
	ticker := time.NewTicker(a.period(findPeriod))
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
	images := make(map[processKey]process.Image, len(a.watched))
	for _, w := range a.watched {
		images[w.key] = w.image
	}
	a.mu.Unlock()

	isWatched := func(p tree.Arrival) bool {
		image, ok := images[processKey{p.PID, p.StartTicks}]
		return ok && image == p.Image
	}
	found, ignored, err := a.finder.scan(isWatched, MaxWatched-len(images))
	added := make([]*watched, len(found))
	for i, c := range found {
		added[i] = a.newWatched(c)
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

// newWatched begins to watch a process that was found.
func (a *Agent) newWatched(c candidate) *watched {
	w := &watched{
		key: processKey{c.PID, c.StartTicks}, process: c.process, start: c.Start, image: c.Image,
		limits: process.NewSystemMemoryReader(), identity: c.identity, command: c.process.Command(),
		labels: c.rule.Labels, last: growth.UnknownSample(),
	}
	w.begin(0, a.criteria, a.options.Speed)
	return w
}

// add adds a process, with its history of the agent before.
func (a *Agent) add(w *watched) {
	a.mu.Lock()
	saved, isKnown := a.saved[w.key]
	isKnown = isKnown && saved.Image == w.image.String()
	delete(a.saved, w.key)
	a.mu.Unlock()

	kind := EventAppeared
	if isKnown {
		kind = EventRestored
		w.restore(saved)
		if saved.Folder != "" {
			if trace, _, f, err := a.readTrace(w.key, saved.Folder); err == nil {
				w.trace = trace
				f.Close()
			}
		}
	}
	if s, err := w.process.Sample(); err == nil {
		w.last = s
	}

	a.mu.Lock()
	a.watched = append(a.watched, w)
	a.mu.Unlock()
	a.report(w.event(kind))
}

// sampleAll samples and judges all processes until ctx ends.
func (a *Agent) sampleAll(ctx context.Context) {
	period := a.period(samplePeriod)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	checkEvery := max(1, int(a.period(checkPeriod)/period))
	saveAt := time.Now().Add(a.period(savePeriod))

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
			if (tick+i)%checkEvery == 0 || w.isDue() {
				a.check(w, now)
			}
			if w.isDue() {
				a.judge(w)
			}
		}
		a.mu.Lock()
		a.sampledAt = time.Now()
		a.mu.Unlock()
		a.decide()

		if time.Now().After(saveAt) {
			saveAt = time.Now().Add(a.period(savePeriod))
			if err := a.save(); err != nil {
				a.report(Event{Kind: EventError, Err: err})
			}
		}
	}
}

// bootTime is the time since the boot, suspended or not: the clock of starts.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // the clock always exists
	return time.Duration(now.Nano())
}

// sample samples a process; false: it has ended.
func (a *Agent) sample(w *watched, now time.Duration) bool {
	status, err := w.process.Status()
	if err != nil || status.RSS == growth.Unknown {
		a.remove(w, EventEnded)
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
func (a *Agent) check(w *watched, now time.Duration) {
	stat, err := w.process.Stat()
	if err == nil && stat.Image != w.image && !stat.Image.IsZero() {
		// The next scan for new processes compares it with the rules again.
		a.remove(w, EventExecuted)
		return
	}
	headroom := w.limits.Read(w.process).Headroom().Nearest(w.process.Headroom())
	a.mu.Lock()
	w.headroom = headroom
	a.mu.Unlock()
}

// judge judges a process, and reports what has changed.
func (a *Agent) judge(w *watched) {
	v := w.history.judge(w.headroom, a.criteria)
	a.mu.Lock()
	t := w.judged(v, a.options.Speed)
	event := w.event(EventTurned)
	event.Before = t.before
	a.mu.Unlock()

	switch {
	case t.turned:
		a.report(event)
	case t.nearLimit:
		event.Kind = EventNearLimit
		a.report(event)
	}
}

// remove ends the watch of a process.
func (a *Agent) remove(w *watched, kind EventKind) {
	a.mu.Lock()
	a.watched = slices.DeleteFunc(a.watched, func(other *watched) bool { return other == w })
	event := w.event(kind)
	a.mu.Unlock()
	w.close()
	a.report(event)
}

// find returns a watched process; nil: it is none any more. The caller holds mu.
func (a *Agent) find(key processKey) *watched {
	for _, w := range a.watched {
		if w.key == key {
			return w
		}
	}
	return nil
}

// save writes the state.
func (a *Agent) save() error {
	a.mu.Lock()
	s := savedState{Schema: stateSchema, BootID: a.bootID, TracesAt: slices.Clone(a.tracesAt)}
	if r := a.running; r != nil {
		s.Running = &savedTrace{r.key.pid, r.key.start, r.folder}
	}
	for _, w := range a.watched {
		s.Processes = append(s.Processes, w.saved())
	}
	for _, p := range a.saved {
		if len(s.Processes) < MaxWatched {
			s.Processes = append(s.Processes, p)
		}
	}
	a.mu.Unlock()

	err := a.directory.writeState(&s)
	a.mu.Lock()
	a.saveErr = err
	a.mu.Unlock()
	return err
}

// State implements serve.Source.
func (a *Agent) State() metrics.State {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := metrics.State{
		Version: a.options.Version, Node: a.node, Watched: len(a.watched), Ignored: a.ignored,
		Traces: maps.Clone(a.traces), FolderBytes: a.folderBytes,
	}
	for _, w := range a.watched {
		s.Processes = append(s.Processes, w.state())
	}
	if a.pusher != nil {
		stats := a.pusher.Stats()
		s.Push = &stats
	}
	return s
}

// Healthy implements serve.Source.
func (a *Agent) Healthy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := time.Since(a.sampledAt)
	switch {
	case late > lateTime:
		return fmt.Errorf("the last sample is %s old", late.Round(time.Second))
	case a.findErr != nil:
		return a.findErr
	case a.saveErr != nil:
		return a.saveErr
	case a.running != nil && a.running.stuck:
		return fmt.Errorf("the trace of PID %d does not end", a.running.key.pid)
	}
	return nil
}

// RequestTrace implements serve.Source. The error wraps ErrNotWatched, ErrBusy, ErrTooSoon or
// ErrEnding.
func (a *Agent) RequestTrace(_ context.Context, r serve.Request) (serve.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, err := a.requested(r)
	switch {
	case err != nil:
		return serve.Answer{}, err
	case a.ending:
		return serve.Answer{}, ErrEnding
	case a.running != nil:
		return serve.Answer{}, fmt.Errorf("%w: of PID %d", ErrBusy, a.running.key.pid)
	}

	now := time.Now()
	if wait := a.allowed(w, now); wait > 0 {
		a.traces[metrics.TraceRefused]++
		return serve.Answer{}, fmt.Errorf("%w of PID %d: the next one is allowed in %s", ErrTooSoon,
			w.key.pid, wait.Round(time.Second))
	}
	if err := a.start(w, now); err != nil {
		return serve.Answer{}, err
	}
	return serve.Answer{
		PID: w.key.pid, Folder: a.running.event.Folder, LengthS: a.options.Duration.Seconds(),
	}, nil
}

// requested returns the process of a request: the one with a PID, or the largest one with a job ID
// and a rank.
func (a *Agent) requested(r serve.Request) (*watched, error) {
	var found *watched
	for _, w := range a.watched {
		isMeant := r.PID != 0 && w.key.pid == r.PID ||
			r.PID == 0 && r.Job != "" && w.identity.Job == r.Job && (r.Rank == nil || *r.Rank == w.identity.Rank)
		if isMeant && (found == nil || w.last.RSS > found.last.RSS) {
			found = w
		}
	}
	if found != nil {
		return found, nil
	}

	what := "PID " + strconv.Itoa(r.PID)
	if r.PID == 0 {
		what = fmt.Sprintf("job %q", growth.Truncate(growth.Printable(r.Job), maxJobBytes))
		if r.Rank != nil {
			what += ", rank " + strconv.Itoa(*r.Rank)
		}
	}
	return nil, fmt.Errorf("%s: %w", what, ErrNotWatched)
}
