// Package push sends profiles to Pyroscope, by way of a spool on disk.
package push

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// Options say where profiles are sent, and how.
type Options struct {
	// URL of the server, with a path where it is behind a proxy.
	URL string
	// Tenant is X-Scope-OrgID; empty: none.
	Tenant string
	// User and PasswordFile are for basic authentication, TokenFile for a bearer token. The files are
	// read when they are needed.
	User, PasswordFile, TokenFile string
	// Labels are added to the labels of each profile, and win.
	Labels map[string]string
	// Spool is the directory in which profiles wait, and MaxSpoolBytes its size; 0: a default.
	Spool         string
	MaxSpoolBytes int64
	// Jitter is the longest random wait of Run before the first attempt of a profile.
	Jitter time.Duration
}

// DefaultSpoolBytes is the size of a spool where Options name none.
const DefaultSpoolBytes = 256 << 20

// Stats count profiles by their result since the Pusher was opened, but for those that wait: they
// may be older.
type Stats struct {
	Sent    uint64 `json:"sent"`
	Retried uint64 `json:"retried"`
	// Refused are those that the server will never take, Dropped those for which the spool had no
	// room.
	Refused uint64 `json:"refused"`
	Dropped uint64 `json:"dropped"`
	// Damaged are files of the spool that hold no profile. They are moved aside, as the refused
	// are.
	Damaged uint64 `json:"-"`
	// Waiting in the spool, and their size in bytes.
	Waiting      int   `json:"waiting"`
	WaitingBytes int64 `json:"waiting_bytes"`
	// Problem is why the last attempt failed, or why a profile was refused, until another is sent.
	Problem string `json:"-"`
}

// Pauses after attempts that failed. They double from the first to the longest.
const (
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	// longestRetryAfter bounds the pause that a server asks for.
	longestRetryAfter = 10 * time.Minute
	// busyPause is how long Flush waits for another Pusher that sends the rest.
	busyPause = 200 * time.Millisecond
	// pollPeriod is how often Run looks for profiles that others have put into the spool.
	pollPeriod = 30 * time.Second
)

const maxProblemBytes = 500

// A Pusher sends the profiles of a spool to a server. Several may share a spool, in one process or
// in several: each profile is sent by one of them at a time.
type Pusher struct {
	options    Options
	endpoint   *url.URL
	client     *http.Client
	spool      *spool
	added      chan struct{}
	firstPause time.Duration

	mu       sync.Mutex
	stats    Stats
	failures int // attempts in a row
}

// Open checks the options and opens the spool. It makes the directory where there is none.
func Open(options Options) (*Pusher, error) {
	endpoint, err := options.check()
	if err != nil {
		return nil, err
	}

	limit := options.MaxSpoolBytes
	if limit == 0 {
		limit = DefaultSpoolBytes
	}
	s, err := openSpool(options.Spool, destination(endpoint, options.Tenant), limit)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}

	return &Pusher{
		options: options, endpoint: endpoint, client: newClient(), spool: s,
		added: make(chan struct{}, 1), firstPause: firstPause,
	}, nil
}

// Close closes the spool. The profiles in it stay.
func (p *Pusher) Close() error {
	p.client.CloseIdleConnections()
	return p.spool.close()
}

// Directory is where the profiles for this server wait.
func (p *Pusher) Directory() string { return p.spool.path }

// Stats counts the profiles by their result.
func (p *Pusher) Stats() Stats {
	p.mu.Lock()
	out := p.stats
	p.mu.Unlock()
	if waiting, err := p.spool.list(); err == nil {
		out.Waiting = len(waiting)
		for _, w := range waiting {
			out.WaitingBytes += w.size
		}
	}
	return out
}

// AddFolder puts the profiles of a trace into the spool: for each traced process its memory at the
// baseline and at the end, and its growth. More labels win over the labels of the process, and
// Options.Labels over all.
//
// Where the spool is full, the oldest profiles make room.
func (p *Pusher) AddFolder(
	f *folder.Folder, s *summary.Summary, more ...map[string]string,
) error {
	profiles, err := profilesOf(f, s, append(more, p.options.Labels))
	if err != nil {
		return fmt.Errorf("read the profiles of %s: %w", f.Path(), err)
	}

	for _, made := range profiles {
		id, body, err := made.request()
		if err != nil {
			return fmt.Errorf("encode a profile: %w", err)
		}
		dropped, err := p.spool.add(id, body)
		p.mu.Lock()
		p.stats.Dropped += uint64(dropped)
		p.mu.Unlock()
		if err != nil {
			return fmt.Errorf("put a profile into %s: %w", p.spool.path, err)
		}
	}

	select {
	case p.added <- struct{}{}:
	default: // Run has not seen the last ones yet
	}
	return nil
}

// Run sends the profiles that are in the spool, and those that come, until ctx ends. An error of the
// spool is in Stats.Problem: Run tries again.
func (p *Pusher) Run(ctx context.Context) error {
	for {
		jitter := time.Duration(rand.Int64N(int64(p.options.Jitter) + 1))
		if waiting, err := p.spool.list(); err == nil && len(waiting) > 0 && !sleep(ctx, jitter) {
			return nil
		}
		if _, err := p.pass(ctx, time.Time{}); err != nil {
			p.fail(err)
		}

		wait := time.NewTimer(pollPeriod)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-p.added:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// errWaiting: profiles wait, and no attempt has failed.
var errWaiting = errors.New("there was no time to send them")

// Flush sends the profiles that are in the spool, from earlier traces too, until ctx ends. It
// returns why some wait; nil: none does. It does not wait for an attempt that ctx leaves no time
// for.
func (p *Pusher) Flush(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	for {
		left, err := p.pass(ctx, deadline)
		switch {
		case err != nil:
			return err
		case left == 0:
			return nil
		case !sleep(ctx, busyPause): // another Pusher sends them
			return errWaiting
		}
	}
}

// pass tries to send each profile of the spool until it is sent or refused, or another Pusher has
// it. It returns how many are left. A server that takes nothing gets them in turn, with pauses: one
// that it never takes does not hold up the others. The error is why they were not sent.
func (p *Pusher) pass(ctx context.Context, deadline time.Time) (left int, err error) {
	for {
		waiting, err := p.spool.list()
		if err != nil {
			return 0, err
		}

		var problem error
		left = len(waiting)
		for _, w := range waiting {
			if ctx.Err() != nil {
				return left, errors.Join(problem, errWaiting)
			}

			pause, attempt := p.try(ctx, w.name)
			switch {
			case errors.Is(attempt, errBusy):
				continue
			case attempt == nil:
				left--
				continue
			}
			problem = attempt
			if !deadline.IsZero() && time.Until(deadline) < pause || !sleep(ctx, pause) {
				return left, problem
			}
		}

		if problem == nil {
			return left, nil
		}
	}
}

// try sends one profile. The error is errBusy where another Pusher has it. After another error the
// next attempt is due after pause.
func (p *Pusher) try(ctx context.Context, name string) (pause time.Duration, err error) {
	c, err := p.spool.claim(name)
	switch {
	case errors.Is(err, errBusy):
		return 0, err
	case errors.Is(err, fs.ErrNotExist): // another Pusher has sent it
		return 0, nil
	case errors.Is(err, errDamaged):
		p.count(func(s *Stats) { s.Damaged++; s.Problem = shown(err) })
		return 0, nil
	case err != nil:
		return p.fail(err), err
	}

	defer c.release()

	answer := p.post(ctx, c.body)
	switch {
	case answer.accepted:
		p.succeed()
		err = c.remove()
	case answer.refused:
		p.count(func(s *Stats) { s.Refused++; s.Problem = shown(answer.err) })
		err = c.moveTo(refusedDir)
	case ctx.Err() != nil:
		return 0, errWaiting
	default:
		p.count(func(s *Stats) { s.Retried++ })
		return max(p.fail(answer.err), answer.retryAfter), answer.err
	}

	if err != nil {
		return p.fail(err), err
	}
	return 0, nil
}

// count changes the Stats.
func (p *Pusher) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

// succeed notes a profile that was sent.
func (p *Pusher) succeed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Sent++
	p.stats.Problem, p.failures = "", 0
}

// fail notes an attempt that failed, and returns the pause after it: exponential backoff, half of it
// random.
func (p *Pusher) fail(err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Problem = shown(err)
	pause := min(longestPause, p.firstPause<<min(p.failures, 16))
	p.failures++
	return pause/2 + time.Duration(rand.Int64N(int64(pause/2)+1))
}

// shown is the text of an error, which may have parts of a server's answer.
func shown(err error) string { return growth.Printable(growth.Truncate(err.Error(), maxProblemBytes)) }

// sleep waits. It returns false where ctx ended.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
