package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// hangTime is the time after which a stretch is taken to hang, beyond its seconds. Tools may take
// long to start a program and to write their reports.
const hangTime = 4 * time.Minute

// A stretch with a tool has so many parts. With a tool of others a part takes peerPart seconds.
const (
	parts    = 5
	peerPart = 2
	// attachedLonger: parts end with a step, and take longer than their seconds.
	attachedLonger = 2
)

// endingRuns is how often a program that only ends is run for one stretch.
const endingRuns = 3

// A cell is a program with a tool.
type cell struct {
	tool    tool
	samples []sample
	err     error // why there are no samples, or no more
}

// A sample is a stretch with a tool, which has parts, and the native ones before and after it.
type sample struct {
	stretch
	parts         []stretch
	before, after stretch
	load          meter.Load
	report        report
	unread        error // why there is no report
}

// A course measures a program with its tools by turns.
type course struct {
	*bench
	program     program
	leak, cache place
	log         *os.File
	cells       []*cell
	natives     [][]stretch // of each round
	stretches   int
}

// A round has a native process of its own, for a process changes as it grows old. Tools attach to
// it, or trace another one.
type round struct {
	*course
	native  *trainer // nil: the program only ends
	natives []stretch
}

// measure runs rounds until a time, one at least. The end of ctx ends it, and samples that are
// complete stay.
func (c *course) measure(ctx context.Context, until time.Time) error {
	for number := 0; number < c.rounds; number++ {
		began := time.Now()
		r := round{course: c}
		err := r.measure(ctx)
		c.natives = append(c.natives, r.natives)
		if ctx.Err() != nil {
			return nil // an interruption is no fault
		}
		if err != nil {
			return err
		}
		if time.Now().Add(time.Since(began)).After(until) {
			break
		}
	}
	return nil
}

// measure adds a sample to each cell. The error is of the program without a tool.
func (r *round) measure(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // it ends all processes that were started

	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, c := range r.cells {
		if c.err != nil {
			continue
		}

		began := time.Now()
		s, err := r.trace(ctx, c.tool)
		if ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(os.Stderr, "%s, %s: %.0f s\n", r.program.name, c.tool.label,
			time.Since(began).Seconds())
		if err != nil {
			c.err = err
			if err := r.begin(ctx); err != nil { // it may have ended the program
				return err
			}
			continue
		}

		s.before = r.natives[len(r.natives)-1]
		if err := r.workNatively(ctx); err != nil {
			return err
		}
		s.after = r.natives[len(r.natives)-1]
		if ctx.Err() == nil {
			c.samples = append(c.samples, s)
		}
	}

	if r.native != nil {
		return r.native.leave(false)
	}
	return nil
}

// begin starts the native process, and lets it work.
func (r *round) begin(ctx context.Context) (err error) {
	if !r.program.ends {
		if r.native != nil {
			_ = r.native.command.Cancel()
		}
		if r.native, err = startTrainer(ctx, r.Inside(r.program.command...), r.log); err != nil {
			return fmt.Errorf("start %s: %w: %s", r.program.name, err, lastLine(r.log.Name()))
		}
	}
	return r.workNatively(ctx)
}

func (r *round) workNatively(ctx context.Context) (err error) {
	var s stretch
	if r.program.ends {
		s, err = r.runToEnd(ctx, func(string) []string { return r.program.command })
	} else {
		s, err = r.native.work(r.part())
	}
	if err == nil {
		r.natives = append(r.natives, s)
	}
	return err
}

// trace returns a stretch of the program with a tool.
func (r *round) trace(ctx context.Context, t tool) (s sample, err error) {
	part := peerPart
	if t.own {
		part = r.part()
	}
	ctx, stop := context.WithTimeout(ctx, time.Duration(parts*part)*time.Second+hangTime)
	defer stop()

	name, err := r.folder()
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(r.Outer(name)) // recordings are large

	if r.program.ends {
		for i := range endingRuns {
			if err := os.Mkdir(r.Outer(name, runFolder(i)), 0o755); err != nil {
				return s, err
			}
		}
		s.stretch, err = r.runToEnd(ctx, func(run string) []string {
			return t.wrap(r.program.command, r.Inner(name, run))
		})
		s.parts = []stretch{s.stretch}
		return s, err
	}

	traced, command := r.native, r.program.command
	if t.wrap != nil {
		command = t.wrap(command, r.Inner(name))
	}
	if t.wrap != nil || t.apart {
		if traced, err = startTrainer(ctx, r.Inside(command...), r.log); err != nil {
			return s, fmt.Errorf("%w: %s", err, lastLine(r.log.Name()))
		}
	}

	if err := r.work(ctx, t, traced, part, name, &s); err != nil {
		return s, err
	}
	if traced != r.native {
		if err := traced.leave(t.returns); err != nil {
			return s, err
		}
	}
	s.report, s.unread = t.read(r.reporter(name, traced.pid))
	s.report.rank = s.report.rankOf(r.leak)
	return s, nil
}

// work lets a program work under its tool, whose load is measured meanwhile.
func (r *round) work(
	ctx context.Context, t tool, traced *trainer, part int, name string, s *sample,
) (err error) {
	tracer, except := traced.command.Process.Pid, traced.pid
	end := func() error { return nil }
	if t.attach != nil {
		a, err := r.attach(ctx, t, traced, parts*part+attachedLonger, name)
		if err != nil {
			return err
		}
		tracer, except, end = a.command.Process.Pid, 0, a.end
	}

	working, worked := context.WithCancel(ctx)
	loads := make(chan meter.Load)
	go func() { loads <- meter.Measure(working, tracer, except) }()
	for len(s.parts) < parts && err == nil {
		var one stretch
		if one, err = traced.work(part); err == nil {
			s.add(one)
		}
	}
	worked()
	s.load = <-loads
	if err != nil {
		return err
	}
	return end()
}

// attach starts a tool that attaches to a program. It stays for some seconds, a moment longer than
// the program works.
func (r *round) attach(
	ctx context.Context, t tool, traced *trainer, seconds int, name string,
) (*attachment, error) {
	folder := r.Outer(name)
	if t.inside {
		folder = r.Inner(name)
	}
	command := t.attach(r.binaries, traced.pid, seconds, folder)
	if !t.busy {
		return attach(ctx, command, t.ready, r.Outer(name))
	}

	worked := make(chan error)
	go func() {
		_, err := traced.work(busySeconds)
		worked <- err
	}()
	a, err := attach(ctx, command, t.ready, r.Outer(name))
	if workErr := <-worked; err == nil {
		err = workErr
	}
	return a, err
}

// busySeconds is how long a program works so that a tool may attach meanwhile.
const busySeconds = 5

// folder makes a folder for the files of a tool, and returns its name.
func (c *course) folder() (string, error) {
	c.stretches++
	name := fmt.Sprintf("%s-%d", c.program.name, c.stretches)
	if err := os.Mkdir(c.Outer(name), 0o755); err != nil {
		return "", err
	}
	return name, os.Symlink(c.libc, c.Outer(name, libcLink))
}

func runFolder(number int) string { return fmt.Sprintf("run%d", number) }

// runToEnd runs a program that does nothing else than to end. Its folder is one of each run.
func (r *round) runToEnd(
	ctx context.Context, wrap func(run string) []string,
) (s stretch, err error) {
	began := time.Now()
	for s.steps < endingRuns {
		argv := r.Inside(wrap(runFolder(s.steps))...)
		command := exec.CommandContext(ctx, argv[0], argv[1:]...)
		harness.OwnGroup(command)
		if text, err := command.CombinedOutput(); err != nil {
			return s, fmt.Errorf("run %s: %w: %s", r.program.name, err, text)
		}

		state := command.ProcessState
		s.cpu += (state.UserTime() + state.SystemTime()).Seconds()
		s.steps++
	}
	s.seconds = time.Since(began).Seconds()
	return s, nil
}

// reporter reads the files of a tool in a folder.
func (c *course) reporter(name string, pid int) reporter {
	return reporter{
		outer: c.Outer(name), inner: c.Inner(name), pid: pid,
		program: c.program, leak: c.leak, cache: c.cache,
		inside: func(ctx context.Context, argv ...string) *exec.Cmd {
			argv = c.Inside(argv...)
			return exec.CommandContext(ctx, argv[0], argv[1:]...)
		},
	}
}

// added returns the bytes by which the tool increased the RSS of the target: its RSS without the
// leak, minus the RSS of the native stretches before and after.
func (s sample) added() float64 {
	held := func(s stretch) float64 { return float64(s.rss - s.kept) }
	return held(s.stretch) - (held(s.before)+held(s.after))/2
}

// rate returns the rate of the leak that the tool reports as a multiple of the true one.
func (s sample) rate() (times float64, ok bool) {
	if s.unread != nil || s.leaked == 0 || s.report.rate == 0 {
		return 0, false
	}
	return s.report.rate / 60 / (float64(s.leaked) / s.seconds), true
}

// add adds a part.
func (s *sample) add(part stretch) {
	s.parts = append(s.parts, part)
	s.steps, s.seconds, s.cpu = s.steps+part.steps, s.seconds+part.seconds, s.cpu+part.cpu
	s.leaked, s.kept, s.rss = s.leaked+part.leaked, part.kept, part.rss
}

// native returns a number of the native steps.
func (s sample) native(of func(stretch) float64) float64 { return (of(s.before) + of(s.after)) / 2 }

// ratios returns a number of a step in each part as a multiple of the native one.
func (s sample) ratios(of func(stretch) float64) []float64 {
	return each(s.parts, func(part stretch) float64 { return of(part) / s.native(of) })
}

// slowed returns the CPU time that the tool added to a step, as a share of a native step by the
// clock. Other programs do not count.
func (s sample) slowed() float64 {
	return (cpuOfStep(s.stretch) - s.native(cpuOfStep)) / s.native(wallOfStep)
}

// noise returns the ratio of each native stretch of a round to the mean of the native ones before
// and after: the result of ratios if there were no tool.
func noise(native []stretch, of func(stretch) float64) []float64 {
	var ratios []float64
	for i := 1; i < len(native)-1; i++ {
		ratios = append(ratios, of(native[i])/((of(native[i-1])+of(native[i+1]))/2))
	}
	return ratios
}

// logFile makes the file for the messages of a program and its tools.
func (c *course) logFile() (err error) {
	c.log, err = os.Create(filepath.Join(c.Outer(), c.program.name+".log"))
	return err
}
