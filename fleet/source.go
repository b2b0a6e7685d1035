package fleet

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/growth"
)

// State implements serve.Source.
func (a *Agent) State() metrics.State {
	pushed := a.pusher.stats() // it reads the spool

	a.mu.Lock()
	defer a.mu.Unlock()
	s := metrics.State{
		Push:    pushed,
		Version: a.options.Version, Node: a.node, Watched: len(a.watched), Ignored: a.ignored,
		Traces: maps.Clone(a.traces), FolderBytes: a.folderBytes,
		OOMKills: a.oomKills,
	}

	for _, w := range a.watched {
		s.Processes = append(s.Processes, w.state())
	}

	return s
}

// Healthy implements serve.Source.
func (a *Agent) Healthy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return checkLate(a.sampledAt)
}

// checkLate returns an error if samples are late, of which the last was at a time.
func checkLate(last time.Time) error {
	if late := time.Since(last); late > lateTime {
		return fmt.Errorf("the last sample is %s old", late.Round(time.Second))
	}

	return nil
}

// Ready implements serve.Source.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	late := checkLate(a.sampledAt)
	switch {
	case late != nil:
		return late
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
	w, err := a.watched.requested(r)
	switch {
	case err != nil:
		return serve.Answer{}, err
	case a.ending:
		return serve.Answer{}, ErrEnding
	case a.running != nil:
		return serve.Answer{}, fmt.Errorf("%w: of PID %d", ErrBusy, a.running.key.pid)
	}

	now := time.Now()
	if wait := a.allowance.wait(w, now); wait > 0 {
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
func (l watchList) requested(r serve.Request) (*watchedProcess, error) {
	var found *watchedProcess
	for _, w := range l {
		isMeant := r.PID != 0 && w.key.pid == r.PID ||
			r.PID == 0 && r.Job != "" && w.identity.Job == r.Job &&
				(r.Rank == nil || *r.Rank == w.identity.Rank)
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
