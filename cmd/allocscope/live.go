package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/live"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// liveDisplay shows the trace on a screen of its own. When that ends, by the end of the trace, a signal or a fault, it goes on as the
// line.
type liveDisplay struct {
	r      *recorder
	line   *status
	screen *live.Screen
	// signals that came while the screen was up. As long as they are awaited, none ends allocscope before the terminal is as it was.
	signals chan os.Signal
	ended   chan struct{} // the terminal is as it was, and so are the logs
	unwatch func() bool
	once    sync.Once
	stuck   bool // who writes to the terminal waits forever, which the files must not

	looks *provisional
	pace  pace
	cost  ownCost
	trail live.Trail
	track *growth.Track // of the trail

	onDevice deviceCourse
}

func newLiveDisplay(ctx context.Context, r *recorder, line *status, keys, out *os.File) (*liveDisplay, error) {
	d := &liveDisplay{r: r, line: line, signals: make(chan os.Signal, 8), ended: make(chan struct{}), looks: newProvisional(r)}
	screen, err := live.Open(keys, out, live.Actions{Mark: d.mark, Interrupt: interrupt})
	if err != nil {
		_ = keys.Close()
		return nil, err
	}
	d.screen = screen
	signal.Notify(d.signals, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	line.to.divert(screen.Log)
	d.unwatch = context.AfterFunc(ctx, d.clear)
	go func() {
		<-screen.Ended()
		d.clear()
	}()
	return d, nil
}

// interrupt is what Ctrl-C does where the terminal is not raw.
func interrupt() { _ = unix.Kill(os.Getpid(), unix.SIGINT) } // cannot fail

func (d *liveDisplay) mark(text string, at time.Time) {
	if text = markText(text); text != "" && !d.r.marks.add(text, at) {
		slog.Warn("the mark was not taken: there have been too many")
	}
}

// show implements display.
func (d *liveDisplay) show(sample growth.Sample, latest *growth.Snapshot, events tracer.Events, losses []tracer.Loss, overhead *summary.Overhead) {
	select {
	case <-d.ended:
		if !d.stuck {
			d.line.show(sample, latest, events, losses, overhead)
		}
	default:
		d.screen.Show(d.state(sample, events, losses, overhead))
	}
}

// clear implements display. A second signal has waited for it, and now does what it does.
func (d *liveDisplay) clear() {
	d.once.Do(func() {
		err := d.screen.Close()
		if d.stuck = errors.Is(err, live.ErrStuck); d.stuck {
			go d.resume(err)
		} else {
			d.resume(err)
		}
		close(d.ended)
		signal.Stop(d.signals)
		if len(d.signals) > 1 {
			<-d.signals
			again := <-d.signals
			_ = unix.Kill(os.Getpid(), again.(unix.Signal))
		}
	})
	if !d.stuck {
		d.line.clear()
	}
}

// resume lets lines through again, and says why the screen has ended where it did so by itself.
func (d *liveDisplay) resume(err error) {
	d.line.to.resume()
	if err != nil {
		slog.Warn("the screen has ended: " + err.Error())
	}
}
