package screen

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/chart"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/process"
)

// NewDisplay returns the screen where there is a terminal for it, and the status line elsewhere.
func NewDisplay(
	ctx context.Context,
	r *record.Recorder,
	options *trace.Options,
	stderr *console.Console,
	out io.Writer,
) trace.Display {
	line := console.NewStatusLine(stderr)
	line.Quiet = options.Quiet
	terminal, ok := out.(*os.File)
	if !ok || !stderr.IsTerminal() || !wantsScreen(options, terminal) {
		return line
	}

	keys, err := openKeys(terminal)
	if err != nil {
		slog.Debug("no screen: " + err.Error())
		return line
	}

	d, err := openDisplay(ctx, r, stderr, line, keys, terminal, options.Color)
	if err != nil {
		slog.Debug("no screen: " + err.Error())
		return line
	}

	return d
}

// wantsScreen reports whether the user can see a screen, and has not asked for something else.
func wantsScreen(options *trace.Options, out *os.File) bool {
	switch {
	case options.NoTUI || options.JSON || options.Quiet:
		return false
	case os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb":
		return false
	case options.Marks == "-" &&
		term.IsTerminal(int(os.Stdin.Fd())): // its input is marks, not keys
		return false
	}
	return term.IsTerminal(int(out.Fd()))
}

// openKeys opens the controlling terminal. The error is ENOTTY where that is not the terminal of
// out, or where allocscope runs in its background: the kernel stops a background process that reads
// a terminal or changes it (SIGTTIN, SIGTTOU).
func openKeys(out *os.File) (*os.File, error) {
	group, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPGRP) // fails on other terminals
	if err == nil && group != unix.Getpgrp() {
		err = unix.ENOTTY
	}
	if err != nil {
		return nil, &os.PathError{Op: "read keys", Path: out.Name(), Err: err}
	}
	return os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
}

// display shows a trace on a screen. After the screen has ended, by the end of the trace, a signal
// or a fault, it shows the status line.
type display struct {
	recorder *record.Recorder
	stderr   *console.Console
	line     *console.StatusLine
	screen   *Screen

	// signals that came while the screen was up. While they are received, none ends allocscope
	// before the terminal is restored.
	signals chan os.Signal
	ended   chan struct{} // closed when the terminal and the log are restored
	once    sync.Once
	stuck   bool // a write to the terminal blocks forever, which must not block the files

	preview  *preview
	rate     console.EventRate
	usage    ownUsage
	curve    chart.Curve
	process  *growth.ProcessHistory // of the curve
	gpuCurve gpuCurve
}

func openDisplay(
	ctx context.Context, r *record.Recorder, stderr *console.Console, line *console.StatusLine,
	keys, out *os.File, color console.Color,
) (*display, error) {
	d := &display{
		recorder: r, stderr: stderr, line: line, signals: make(chan os.Signal, 8),
		ended: make(chan struct{}), preview: newPreview(r),
	}

	screen, err := Open(keys, out, color, Actions{
		Mark: d.mark, Extend: d.extend, Interrupt: interrupt,
	})
	if err != nil {
		_ = keys.Close()
		return nil, err
	}

	d.screen = screen

	signal.Notify(d.signals, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	stderr.Redirect(screen.Log)
	context.AfterFunc(ctx, d.Clear)
	go func() {
		<-screen.Ended()
		d.Clear()
	}()

	return d, nil
}

// interrupt acts as Ctrl-C where the terminal is not raw.
func interrupt() { _ = unix.Kill(os.Getpid(), unix.SIGINT) } // cannot fail

func (d *display) mark(text string, at time.Time) {
	if text = record.MarkText(text); text != "" && !d.recorder.AddMark(text, at) {
		slog.Warn("the mark was dropped: there have been too many")
	}
}

// extend makes a trace with an end go on longer.
func (d *display) extend() {
	d.recorder.Deadline().Extend()
	if end := d.recorder.Deadline().At(); end != 0 {
		slog.Info(words.Extended(end))
	}
}

// Show implements trace.Display.
func (d *display) Show(p record.Progress) {
	select {
	case <-d.ended:
		if !d.stuck {
			d.line.Show(p)
		}
	default:
		d.screen.Show(d.state(p))
	}
}

// Clear implements trace.Display. A second signal was held back until the terminal is restored, and
// is sent again then.
func (d *display) Clear() {
	d.once.Do(func() {
		err := d.screen.Close()
		if d.stuck = errors.Is(err, ErrStuck); d.stuck {
			go d.resume(err)
		} else {
			d.resume(err)
		}

		close(d.ended)

		signal.Stop(d.signals)
		if len(d.signals) > 1 {
			<-d.signals
			second := <-d.signals
			_ = unix.Kill(os.Getpid(), second.(unix.Signal))
		}
	})

	if !d.stuck {
		d.line.Clear()
	}
}

// resume ends the redirection of the log. It logs why the screen has ended where it did so by
// itself.
func (d *display) resume(err error) {
	d.stderr.Resume()
	if err != nil {
		slog.Warn("the screen has ended: " + err.Error())
	}
}

// maxShownMarks is how many marks a State has.
const maxShownMarks = 20

// state copies the state of the trace for the screen.
func (d *display) state(progress record.Progress) *State {
	d.preview.judge()
	d.preview.compare()
	d.preview.count()

	r, p, elapsed := d.recorder, d.preview, progress.Sample.Elapsed
	history := r.History()
	latest := history.Rows[len(history.Rows)-1]
	process := history.Main()
	about := r.ProcessOf(process)

	s := &State{
		Command: about.Command, PID: about.PID, Processes: int(latest.Tree.Processes),
		Traced: r.History().TracedNow(), Elapsed: elapsed, Duration: r.Deadline().At(),
		Extension: r.Deadline().Extension(), UntilSettled: progress.UntilSettled,

		Verdict: p.verdict, JudgedAt: p.judgedAt, Suspect: p.suspect, Diagnosis: p.diagnosis,
		Keeper: p.keeper(), Objects: p.objects.grown,
		Since: p.compared.since, Warm: p.compared.warm, Stacks: p.compared.stacks,
		Breakdown: p.compared.breakdown, Resident: p.compared.resident,

		RSS: growth.Unknown, Steps: -1, Events: d.rate.Update(elapsed, progress.Events),
		MarkCount: len(history.Marks), Overhead: progress.Overhead,
	}

	if process != nil && len(process.Timeline) > 0 {
		s.RSS = process.Timeline[len(process.Timeline)-1].RSS
		s.Steps = recentSteps(process.Timeline, r.Began())
		d.follow(process)
		s.GPU = d.gpu(process)
	}

	s.Curve = d.curve
	first := r.Recorded().Headroom(process)
	s.Headroom, s.Limit = first.Left, first.Of
	s.CPU, s.OwnRSS = d.usage.update()
	s.Drops, s.DropReason = progress.TotalLosses()

	for _, m := range history.Marks[max(0, len(history.Marks)-maxShownMarks):] {
		s.Marks = append(s.Marks, summary.Mark{AtS: summary.Seconds(m.At), Text: m.Text})
	}

	return s
}

// follow adds the latest size of a process to the curve, which starts again with another process.
func (d *display) follow(process *growth.ProcessHistory) {
	last := len(process.Timeline) - 1
	if d.process != process {
		d.process, d.curve = process, chart.Curve{}
		for _, s := range process.Timeline[:last] {
			d.add(s)
		}
	}
	d.add(process.Timeline[last])
}

func (d *display) add(s growth.Sample) {
	if s.RSS != growth.Unknown {
		d.curve = d.curve.With(s.Elapsed, s.RSS)
	}
}

// recentSteps returns the training steps a second over the last minute of a trace that began at a
// time; negative: no steps were seen.
func recentSteps(timeline growth.Timeline, began time.Duration) float64 {
	const samples = 60 // one a second

	last := timeline[len(timeline)-1]
	for i := max(0, len(timeline)-samples); i < len(timeline)-1; i++ {
		first := timeline[i]
		if first.Elapsed >= began && first.Steps != growth.Unknown && last.Steps > 0 && last.Elapsed > first.Elapsed {
			return float64(last.Steps-first.Steps) / (last.Elapsed - first.Elapsed).Seconds()
		}
	}
	return -1
}

// ownUsage is the CPU time of allocscope itself at a time.
type ownUsage struct {
	at  time.Time
	cpu time.Duration
}

// update returns the CPU time since the last call as a share of one core, and the RSS in bytes.
func (u *ownUsage) update() (share float64, rss int64) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0, 0
	}

	before := *u
	*u = ownUsage{time.Now(), time.Duration(used.Utime.Nano() + used.Stime.Nano())}
	if !before.at.IsZero() {
		share = (u.cpu - before.cpu).Seconds() / u.at.Sub(before.at).Seconds()
	}

	if math.IsInf(share, 0) || math.IsNaN(share) {
		share = 0
	}

	return share, ownRSS()
}

// ownRSS reads the second field of /proc/self/statm (proc_pid_statm(5)); 0: unknown.
func ownRSS() int64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}

	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}

	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}

	return pages * int64(process.PageSize)
}
