package fleet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/export/summary"
)

// flushTime is how long the agent pushes profiles at its end.
const flushTime = 10 * time.Second

// A pusher pushes the profiles of traces; nil: nothing is pushed.
type pusher struct {
	*push.Pusher
	// problem is why profiles waited when newProblem was called last.
	problem string
}

// openPusher opens a pusher, whose spool is in the directory unless another one is given.
func openPusher(to push.Options, d *directory) (*pusher, error) {
	if to.Spool == "" {
		to.Spool = filepath.Join(d.path, spoolFolder)
	}

	opened, err := push.Open(to)
	return &pusher{Pusher: opened}, pushError(err)
}

// pushError says what did not work; nil: all did.
func pushError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("push profiles: %w", err)
}

// stats are the counts of the profiles.
func (p *pusher) stats() *push.Stats {
	if p == nil {
		return nil
	}

	return new(p.Stats())
}

// add pushes the profiles of a trace later.
func (p *pusher) add(f *folder.Folder, s *summary.Summary, labels map[string]string) error {
	if p == nil {
		return nil
	}
	return pushError(p.AddFolder(f, s, labels))
}

// newProblem is why profiles are not pushed, each reason once.
func (p *pusher) newProblem() error {
	if p == nil {
		return nil
	}

	stats, before := p.Stats(), p.problem
	p.problem = stats.Problem
	if p.problem == "" || p.problem == before {
		return nil
	}
	return fmt.Errorf("push profiles: %s (%d wait in %s)", p.problem, stats.Waiting, p.Directory())
}

// flush sends the profiles that wait, also from the trace that has just ended. Profiles that cannot
// be sent now wait for the next agent.
func (p *pusher) flush() error {
	if p == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := p.Flush(ctx); err != nil {
		return fmt.Errorf("push profiles: %w (%d wait in %s)", err, p.Stats().Waiting, p.Directory())
	}
	return nil
}
