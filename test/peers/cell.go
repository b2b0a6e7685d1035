package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// A result is the cost of one way to trace one workload, and its report.
type result struct {
	workload workload
	way      way
	native   []stretch // one more than of traced: before each, and after the last
	traced   []stretch
	last     stretch // the report is about this one, and may include earlier ones
	load     meter.Load
	report   report
	leak     place
	err      error // why there are no numbers
	unread   error // why there is no report
}

// A cell is one way to trace one workload, while it is measured.
type cell struct {
	*bench
	workload workload
	way      way
	name     string // of its folder
	log      *os.File
	result   *result
}

// measure runs a workload natively and traced in turn, and then once more for the report. A tool
// that can attach attaches to the process for each traced stretch; the same process runs natively
// in between. Other tools get a process of their own.
func (c *cell) measure(ctx context.Context) (err error) {
	ctx, stop := context.WithTimeout(ctx, c.limit())
	defer stop() // it ends all processes that were started

	if err := c.prepare(); err != nil {
		return err
	}
	defer c.log.Close()

	native, err := startTrainer(ctx, c.Inside(c.workload.command...), c.log)
	if err != nil {
		return err
	}
	traced := native
	if c.way.wrap != nil {
		command := c.way.wrap(c.workload.command, c.Inner(c.name))
		if traced, err = startTrainer(ctx, c.Inside(command...), c.log); err != nil {
			return fmt.Errorf("%w: %s", err, lastLine(c.log.Name()))
		}
	}
	if err := c.alternate(ctx, native, traced); err != nil {
		return err
	}
	err = traced.leave(c.way.returns)
	if traced != native {
		_ = native.leave(false)
	}
	return err
}

// prepare makes the folder of the cell.
func (c *cell) prepare() (err error) {
	folder := c.Outer(c.name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(c.libc, filepath.Join(folder, libcLink)); err != nil {
		return err
	}
	c.log, err = os.Create(filepath.Join(folder, "log"))
	return err
}

func (c *cell) alternate(ctx context.Context, native, traced *trainer) error {
	r, idle, long, last := c.result, c.seconds, c.seconds, c.last
	if c.way.long {
		idle, long, last = max(c.seconds, c.long/3), c.long, c.longLast
	}
	before, err := native.work(idle)
	if err != nil {
		return err
	}
	r.native = append(r.native, before)
	for range c.rounds {
		s, err := c.trace(ctx, traced, long)
		if err != nil {
			return err
		}
		after, err := native.work(idle)
		if err != nil {
			return err
		}
		r.traced, r.native = append(r.traced, s), append(r.native, after)
	}
	r.last, err = c.trace(ctx, traced, last)
	return err
}

// trace runs a workload under its tool.
func (c *cell) trace(ctx context.Context, t *trainer, seconds int) (s stretch, err error) {
	tracer, except := t.command.Process.Pid, t.pid
	end := func() error { return nil }
	if c.way.attach != nil {
		command := c.way.attach(c.tools, t.pid, seconds, c.Outer(c.name))
		a, err := attach(ctx, command, c.way.ready, c.Outer(c.name))
		if err != nil {
			return s, err
		}
		tracer, except, end = a.command.Process.Pid, 0, a.end
	}

	working, worked := context.WithCancel(ctx)
	loads := make(chan meter.Load)
	go func() { loads <- meter.Measure(working, tracer, except) }()
	s, err = t.work(seconds)
	worked()
	l, before := <-loads, c.result.load
	c.result.load = meter.Load{
		RSS: max(before.RSS, l.RSS), Kernel: max(before.Kernel, l.Kernel), Cores: l.Cores,
	}
	if err != nil {
		return s, err
	}
	return s, end()
}

// limit is the time after which a cell is taken to hang. Tools may take long to start a workload
// and to write their reports.
func (c *cell) limit() time.Duration {
	seconds := 2*c.rounds*max(c.seconds, c.long) + c.longLast + c.last
	return 2*time.Duration(seconds)*time.Second + 2*exitTimeout
}

// added returns the bytes by which the tool increased the RSS of the target: its RSS without the
// leak, minus the RSS of the native stretches before and after.
func (r result) added() (target float64) {
	held := func(s stretch) float64 { return float64(s.rss - s.kept) }
	var more []float64
	for i, s := range r.traced {
		more = append(more, held(s)-(held(r.native[i])+held(r.native[i+1]))/2)
	}

	return harness.Quantile(more, 0.5)
}
