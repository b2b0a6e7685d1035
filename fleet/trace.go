package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// maxTracesPerDay bounds Options.TracesPerDay.
	maxTracesPerDay = 1000

	// A trace that takes graceTime longer than its duration is interrupted, and again after each
	// interruptEvery. The third time ends it.
	graceTime      = 5 * time.Minute
	interruptEvery = 30 * time.Second
	maxInterrupts  = 3
	// endTime is how long the agent waits at its end for the files of a trace.
	endTime = 75 * time.Second
	// resumePeriod is how often the agent looks whether a trace lives that it has not started.
	resumePeriod = 500 * time.Millisecond

	maxTraceLines = 200
	maxLineBytes  = 2000
)

// Why a trace is refused.
var (
	ErrNotWatched = errors.New("no process that the agent watches")
	ErrBusy       = errors.New("another trace runs")
	ErrTooSoon    = errors.New("too soon after the last trace")
	ErrEnding     = errors.New("the agent ends")
)

// A traceRun is a running trace.
type traceRun struct {
	key    processKey
	child  processKey // the trace itself
	folder string     // its name
	labels map[string]string
	event  Event // about its process

	ended chan struct{}
	// stuck: it did not end when it was interrupted. It is guarded by Agent.mu.
	stuck bool
}

// An allowance bounds the traces.
type allowance struct {
	perDay int           // of all processes
	every  time.Duration // of one process
	at     []time.Time   // the starts of the last 24 hours
}

// wait returns how long a trace of a process must wait; 0: it need not.
func (a *allowance) wait(w *watchedProcess, now time.Time) time.Duration {
	var wait time.Duration
	if !w.tracedAt.IsZero() {
		wait = w.tracedAt.Add(a.every).Sub(now)
	}

	const day = 24 * time.Hour
	a.at = slices.DeleteFunc(a.at, func(at time.Time) bool { return now.Sub(at) >= day })
	over := len(a.at) - a.perDay
	switch {
	case a.perDay == 0:
		wait = max(wait, day)
	case over >= 0:
		wait = max(wait, a.at[over].Add(day).Sub(now))
	}

	return max(0, wait)
}

// decide starts the trace that is most urgent, if one is wanted and allowed.
func (a *Agent) decide() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil || a.ending {
		return
	}

	now := time.Now()
	var first *watchedProcess
	for _, w := range a.watched {
		if !w.wantsTrace {
			continue
		}
		if wait := a.allowance.wait(w, now); wait > 0 {
			if !w.wasRefused {
				w.wasRefused = true
				a.traces[metrics.TraceRefused]++
				event := w.event(EventTraceRefused)
				event.Wait = wait
				a.report(event)
			}
			continue
		}
		if first == nil || w.urgency() < first.urgency() {
			first = w
		}
	}

	if first != nil {
		_ = a.start(first, now) // it has been reported
	}
}

// start starts a trace of a process. The caller holds mu, and no trace runs.
func (a *Agent) start(w *watchedProcess, now time.Time) error {
	r := &traceRun{
		key: w.key, folder: a.directory.newTraceName(w.identity, w.key.pid, now), labels: w.labels,
		event: w.event(EventTraceStarted), ended: make(chan struct{}),
	}

	r.event.Folder = a.directory.tracePath(r.folder)
	w.wantsTrace, w.wasRefused, w.tracedAt = false, false, now
	a.allowance.at = append(a.allowance.at, now)
	a.unsaved = true

	child := r.command(a.executable, &a.options)
	started := make(chan error, 1)
	go a.follow(child, r, started)
	if err := <-started; err != nil {
		w.wantsTrace = w.mattersNow() // it may work the next time that a trace is allowed
		a.traces[metrics.TraceFailed]++
		event := r.event
		event.Kind, event.Err = EventTraceFailed, err
		a.report(event)
		return err
	}

	a.running = r
	a.report(r.event)
	return nil
}

// command is the trace as a program of its own, which cannot bring the agent down.
func (r *traceRun) command(executable string, o *Options) *exec.Cmd {
	arguments := []string{
		"trace", "--pid", strconv.Itoa(r.key.pid), "--duration", o.Duration.String(),
		"--no-children", "--no-tui", "--quiet", "--output", r.event.Folder,
	}

	if o.Overhead != "" {
		arguments = append(arguments, "--overhead", o.Overhead)
	}

	child := exec.Command(executable, arguments...)
	child.Args[0] = ownName // no agent watches it
	child.Dir = "/"
	child.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "ALLOCSCOPE_") || strings.HasPrefix(entry, "SUDO_")
	})

	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches the agent alone

	return child
}

// follow starts a trace, and waits for its end. A trace goes on to its end if its agent is killed: the
// next agent takes over its result.
func (a *Agent) follow(child *exec.Cmd, r *traceRun, started chan<- error) {
	defer close(r.ended)

	// It is a file: a pipe that nobody reads would end a trace that outlives its agent.
	logged, err := a.directory.newLog()
	if err == nil {
		defer logged.Close()
		child.Stderr = logged
		err = child.Start()
	}

	if err == nil {
		r.child = keyOf(child.Process.Pid)
	}

	started <- err
	if err != nil {
		return
	}

	ended := make(chan struct{})
	go a.interrupt(r, ended)
	err = child.Wait()
	close(ended)

	a.passOn(r)
	a.finish(r, err)
}

// keyOf returns the key of a process that has just been started.
func keyOf(pid int) processKey {
	stat, err := process.ReadStat(pid)
	if err != nil {
		return processKey{pid: pid}
	}
	return processKey{pid, stat.StartTicks}
}

// isAlive reports whether a process has not exited.
func (k processKey) isAlive() bool {
	stat, err := process.ReadStat(k.pid)
	return err == nil && stat.StartTicks == k.start && stat.State != 'Z'
}

// interrupt sends SIGINT to a process, unless its PID was used again.
func (k processKey) interrupt() {
	child, err := os.FindProcess(k.pid) // by a descriptor: it stays this one
	if err != nil {
		return
	}

	defer func() { _ = child.Release() }()
	if k.isAlive() {
		_ = child.Signal(os.Interrupt)
	}
}

// passOn reports the lines that a trace has logged, the first ones.
func (a *Agent) passOn(r *traceRun) {
	logged, err := a.directory.root.Open(logFile)
	if err != nil {
		return
	}
	defer logged.Close()

	lines := bufio.NewReaderSize(logged, maxLineBytes)
	for n := 0; ; {
		line, isPart, err := lines.ReadLine()
		if err != nil {
			return
		}
		text := growth.Printable(string(line))
		for isPart && err == nil {
			_, isPart, err = lines.ReadLine()
		}
		if n++; n <= maxTraceLines && text != "" {
			event := r.event
			event.Kind, event.Line = EventTraceLine, text
			a.report(event)
		}
	}
}

// interrupt interrupts a trace that lasts too long, or whose agent ends.
func (a *Agent) interrupt(r *traceRun, ended <-chan struct{}) {
	longest := time.NewTimer(a.options.Duration + graceTime)
	defer longest.Stop()
	select {
	case <-ended:
		return
	case <-longest.C:
	case <-a.done:
	}

	for range maxInterrupts {
		r.child.interrupt()
		select {
		case <-ended:
			return
		case <-time.After(interruptEvery):
		}
	}

	a.mu.Lock()
	r.stuck = true
	a.mu.Unlock()
	event := r.event
	event.Kind = EventTraceStuck
	a.report(event)
}

// finish takes over the result of a trace that has ended.
func (a *Agent) finish(r *traceRun, err error) {
	a.mu.Lock()
	if w := a.watched.find(r.key); w != nil {
		r.labels = w.labels // an agent before this one may have started the trace
	}
	a.mu.Unlock()

	result, line, readErr := a.collect(r)
	if err == nil { // else that is why
		err = readErr
	}

	a.mu.Lock()
	event := r.event
	if w := a.watched.find(r.key); w != nil {
		event = w.event(EventTraceDone)
		event.Folder = r.event.Folder
	}
	a.mu.Unlock()
	event.Kind, event.Result, event.Err = EventTraceDone, line, err
	outcome := metrics.TraceDone
	if err != nil {
		event.Kind, outcome = EventTraceFailed, metrics.TraceFailed
	}

	a.mu.Lock()
	a.running = nil
	a.traces[outcome]++
	if w := a.watched.find(r.key); w != nil {
		if result != nil {
			w.trace, w.folder = result, r.folder
		}
		// A trace that did not start may start the next time that one is allowed.
		w.wantsTrace = err != nil && w.mattersNow()
	}

	a.unsaved = true
	a.mu.Unlock()
	a.report(event)
	a.retain()
}

// collect reads the result of a trace, and pushes its profiles.
func (a *Agent) collect(r *traceRun) (result *metrics.Trace, line string, err error) {
	result, s, f, err := a.directory.readTrace(r.key, r.folder)
	if err != nil {
		return nil, "", err
	}

	defer f.Close()
	a.reportError(a.pusher.add(f, s, r.labels)) // the trace is good all the same

	return result, resultLine(s), nil
}

// readTrace reads the result of a trace of a process. The caller closes the folder.
func (d *directory) readTrace(
	key processKey, name string,
) (*metrics.Trace, *summary.Summary, *folder.Folder, error) {
	f, err := folder.Open(d.tracePath(name), d.owner)
	if err != nil {
		return nil, nil, nil, err
	}

	var s *summary.Summary
	err = f.ReadFile(folder.SummaryFile, func(r io.Reader) (err error) {
		s, err = summary.Read(r)
		return err
	})

	if err == nil && (s.Target == nil || s.Target.PID != key.pid || s.Target.StartTicks != key.start) {
		err = errors.New("it is a trace of another process: the PID was used again")
	}

	var at time.Time
	if err == nil {
		at, err = f.ModTime(folder.SummaryFile)
	}

	if err != nil {
		f.Close()
		return nil, nil, nil, fmt.Errorf("%s: %w", name, err)
	}

	return traceOf(s, at), s, f, nil
}

// resultLine is the result of a trace in one line: its verdict, and who grows.
func resultLine(s *summary.Summary) string {
	parts := []string{words.Headline(s.Verdict)}
	for _, lines := range [][]string{s.Text.Who, s.Text.Where} {
		if len(lines) > 0 {
			parts = append(parts, lines[0])
		}
	}

	return strings.Join(parts, "; ")
}

// traceOf is the result of a trace as metrics have it.
func traceOf(s *summary.Summary, at time.Time) *metrics.Trace {
	nan := math.NaN()
	t := &metrics.Trace{
		At: at, Duration: time.Duration(s.DurationS * float64(time.Second)), Verdict: s.Class,
		Rows: make(map[growth.Kind]int64), Components: make(map[string]float64),
		Losses: make(map[growth.LossKind]uint64), Slowdown: nan, OwnShare: nan,
	}

	for _, row := range s.Breakdown {
		if row.Process == s.Process.PID && row.Kind != growth.KindSwapped {
			t.Rows[row.Kind] += row.EndBytes
		}
	}

	for _, suspect := range s.Suspects {
		t.Components[suspect.Component] += float64(suspect.BytesPerMin) / time.Minute.Seconds()
	}

	for _, loss := range s.Losses {
		t.Losses[loss.Kind] += loss.Count
	}

	if o := s.Overhead; o != nil {
		if o.Slowdown != nil {
			t.Slowdown = *o.Slowdown
		}
		if s.DurationS > 0 && o.OwnS > 0 {
			t.OwnShare = (o.StartS + o.OwnS + o.SearchS) / s.DurationS
		}
	}

	return t
}

// retain removes the oldest folders beyond the bounds.
func (a *Agent) retain() {
	a.mu.Lock()
	writing := ""
	if a.running != nil {
		writing = a.running.folder
	}

	a.mu.Unlock()

	gone, left, err := a.directory.retain(a.options.Keep, a.options.KeepBytes, writing)
	a.mu.Lock()
	a.folderBytes = left
	a.mu.Unlock()
	for _, name := range gone {
		a.report(Event{Kind: EventFolderGone, Folder: a.directory.tracePath(name)})
	}

	a.reportError(err)
}

// run is a trace that the agent before has left: that agent was killed, or did not wait any longer.
func (s *savedTrace) run(d *directory) *traceRun {
	return &traceRun{
		key: processKey{s.PID, s.StartTicks}, child: processKey{s.ChildPID, s.ChildStartTicks},
		folder: s.Folder, ended: make(chan struct{}),
		event: Event{
			Kind: EventTraceStarted, PID: s.PID, Identity: growth.UnknownIdentity(), RSS: growth.Unknown,
			Folder: d.tracePath(s.Folder),
		},
	}
}

// resume waits for the end of a trace that was taken over.
func (a *Agent) resume(r *traceRun) {
	defer close(r.ended)

	ended := make(chan struct{})
	go a.interrupt(r, ended)
	for r.child.isAlive() {
		time.Sleep(resumePeriod)
	}
	close(ended)

	a.passOn(r)
	a.finish(r, nil)
}
