package trace

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
)

// pushTimeout is how long a trace waits at its end for the server of --push.
const pushTimeout = 30 * time.Second

// openPush checks the flags of --push and opens the spool, before the trace: nobody waits an hour for
// a mistyped URL. It returns nil where nothing is to be pushed.
func (o *Options) openPush() (*push.Pusher, error) {
	if o.Push == nil {
		return nil, nil
	}
	pusher, err := push.Open(*o.Push)
	if err != nil {
		return nil, exit.Usage(fmt.Errorf("--push: %w", err))
	}
	return pusher, nil
}

// pushFolder puts the profiles of a folder into the spool and sends all profiles in it. It logs its
// failures: a trace does not fail for want of a server. The next signal ends the wait.
func (o *Options) pushFolder(pusher *push.Pusher, dir *folder.Folder) {
	if pusher == nil {
		return
	}

	err := dir.ReadFile(folder.SummaryFile, func(r io.Reader) error {
		s, err := summary.Read(r)
		if err != nil {
			return err
		}
		return pusher.AddFolder(dir, s)
	})
	if err != nil {
		slog.Warn(fmt.Sprintf("--push: %v", err))
	}

	signalled, stop := untilSignal()
	defer stop()
	ctx, cancel := context.WithTimeout(signalled, pushTimeout)
	defer cancel()
	problem := pusher.Flush(ctx)
	logPush(pusher, o.Push.URL, problem)
}

// logPush logs the results of sending profiles.
func logPush(pusher *push.Pusher, url string, problem error) {
	profiles := func(n uint64) string { return units.Plural(int(n), "profile", "profiles") }
	s := pusher.Stats()
	if s.Sent > 0 {
		slog.Info(fmt.Sprintf("pushed %s to %s", profiles(s.Sent), url))
	}
	if s.Refused > 0 {
		slog.Warn(fmt.Sprintf("%s refused: %s. They are in %s/refused", profiles(s.Refused),
			s.Problem, pusher.Directory()))
	}
	if s.Dropped > 0 {
		slog.Warn(fmt.Sprintf("%s dropped: the spool is full (--push-spool-size)",
			profiles(s.Dropped)))
	}
	if s.Damaged > 0 {
		slog.Warn(fmt.Sprintf("%s damaged on disk. They are in %s/damaged", profiles(s.Damaged),
			pusher.Directory()))
	}
	if problem != nil {
		slog.Warn(fmt.Sprintf("not pushed yet: %v. %s in %s. The next trace with "+
			"--push %s and the same tenant sends them", problem, waiting(s.Waiting), pusher.Directory(), url))
	}
}

func waiting(n int) string { return units.Plural(n, "profile waits", "profiles wait") }
