package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/reexec"
	"github.com/allocscope/allocscope/tracer/tree"
)

const (
	samplePeriod = time.Second
	// findPeriod is the time between two scans for new processes, and checkPeriod that between two
	// readings of the limits of a process, and of the program that it executes.
	findPeriod  = 5 * time.Second
	checkPeriod = 15 * time.Second
	// savePeriod is the longest time whose data a killed agent loses.
	savePeriod = time.Minute
	// savedTime is how long the history of a process that is not found again is kept.
	savedTime = 10 * time.Minute
	// lateTime is how late a sample may be before the agent says that it does not do its work.
	lateTime = time.Minute
	// maxExecuted bounds Agent.executed.
	maxExecuted = 1024
)

// An Agent watches the processes of a node, and traces those that leak. It implements serve.Source.
type Agent struct {
	options    Options
	node       string
	executable string // that traces
	criteria   verdict.Criteria
	directory  *directory
	pusher     *pusher // nil: nothing is pushed
	finder     *finder
	most       int // processes that are watched
	bootID     string
	done       chan struct{} // closed when the agent ends
	kills      killLog       // of the goroutine that samples

	mu        sync.Mutex
	watched   watchList
	ignored   int
	running   *traceRun // nil: no trace runs
	ending    bool
	allowance allowance
	traces    map[metrics.TraceOutcome]uint64
	oomKills  uint64 // of watched processes
	// unsaved: a trace has begun or ended since the state was saved.
	unsaved bool
	// folderBytes is the size of the kept folders.
	folderBytes int64
	// saved are the processes of the agent before that were not found again yet.
	saved map[processKey]savedProcess
	// resumed is the trace that the agent before has left; nil: none.
	resumed *traceRun
	// executed are the ages at which processes were found to execute another program, until they are
	// watched again.
	executed map[processKey]float64
	// sampledAt is when all processes were sampled last. findErr and saveErr are why new ones are not
	// found, or the state is not saved; nil: they are.
	sampledAt        time.Time
	findErr, saveErr error
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
		options: options, node: nodeName(), executable: reexec.Executable, bootID: boot,
		criteria: verdict.InSeconds().Faster(options.Speed).Repeated(),
		finder:   newFinder(rules, options.MinRSS, options.Speed), most: MaxWatched,
		done: make(chan struct{}), sampledAt: time.Now(),
		allowance: allowance{perDay: options.TracesPerDay, every: options.TraceEvery},
		traces:    make(map[metrics.TraceOutcome]uint64),
		saved:     make(map[processKey]savedProcess), executed: make(map[processKey]float64),
	}

	if a.directory, err = openDirectory(options.Directory); err != nil {
		return nil, err
	}

	if options.Push != nil {
		if a.pusher, err = openPusher(*options.Push, a.directory); err != nil {
			a.directory.close()
			return nil, err
		}
	}

	a.kills.open()
	a.load()
	return a, nil
}

// check refuses options that an agent cannot fulfil.
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
		return fmt.Errorf("a trace of %s is longer than the time between two, %s", o.Duration,
			o.TraceEvery)
	case o.TracesPerDay < 0 || o.TracesPerDay > maxTracesPerDay:
		return fmt.Errorf("%d traces a day: write 0 to %d", o.TracesPerDay, maxTracesPerDay)
	case !(o.NearLimit >= 0 && o.NearLimit < 1):
		return fmt.Errorf("a limit is near at %g of it: write 0 to less than 1", o.NearLimit)
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

	a.allowance.at = s.TracesAt
	if s.Running != nil {
		a.running = s.Running.run(a.directory)
		a.resumed = a.running
	}
}

// Close releases the files that New has opened.
func (a *Agent) Close() error {
	var err error
	if a.pusher != nil {
		err = a.pusher.Close()
	}

	for _, w := range a.watched {
		w.close()
	}

	a.kills.close()
	a.directory.close()
	return err
}

func (w *watchedProcess) close() {
	w.process.Close()
	w.limits.Close()
}

func (a *Agent) report(e Event) {
	if a.options.Report != nil {
		a.options.Report(e)
	}
}

// reportError reports an error that the agent goes on without; nil: there is none.
func (a *Agent) reportError(err error) {
	if err != nil {
		a.report(Event{Kind: EventError, Err: err})
	}
}

// Run watches until ctx ends. Then it ends a trace that runs, saves the state, and sends the profiles
// that wait.
func (a *Agent) Run(ctx context.Context) error {
	a.retain()
	var wg sync.WaitGroup
	wg.Go(func() { a.findAll(ctx) })
	if a.pusher != nil {
		wg.Go(func() { a.reportError(pushError(a.pusher.Run(ctx))) })
	}

	if a.resumed != nil {
		go a.resume(a.resumed)
	}

	a.sampleAll(ctx)
	a.endTrace()
	wg.Wait()
	err := a.save()
	a.reportError(a.pusher.flush())
	return err
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

// save writes the state.
func (a *Agent) save() error {
	a.mu.Lock()
	a.unsaved = false
	s := savedState{Schema: stateSchema, BootID: a.bootID, TracesAt: slices.Clone(a.allowance.at)}
	if r := a.running; r != nil {
		s.Running = &savedTrace{r.key.pid, r.key.start, r.folder, r.child.pid, r.child.start}
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
