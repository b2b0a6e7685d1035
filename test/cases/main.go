// Command cases traces programs with the defaults that grow, or seem to, as users have reported it,
// and checks the result of each. It prints a table in Markdown. See the script `run` beside it.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/test/meter"
)

// A campaign has the settings that all cases share.
type campaign struct {
	harness.Debian
	testdata   string
	allocscope string
	output     string // a folder with one for each case
	duration   time.Duration
}

func main() {
	var c campaign
	flag.StringVar(&c.Root, "root", "", "the folder that testdata/peers/debian.sh prints")
	flag.StringVar(&c.testdata, "testdata", "testdata", "the programs")
	flag.StringVar(&c.allocscope, "allocscope", "bin/allocscope", "the program")
	flag.StringVar(&c.output, "output", "", "a folder for what the traces write; it is not removed")
	flag.DurationVar(&c.duration, "duration", 6*time.Minute, "of a trace")
	together := flag.Int("together", 2, "traces at the same time")
	names := flag.String("cases", "", "which, with spaces between them (default all)")
	flag.Parse()

	harness.Main(func(ctx context.Context) error { return c.run(ctx, *names, *together) })
}

func (c *campaign) run(ctx context.Context, names string, together int) error {
	chosen, err := harness.Choose(testCases, names, func(c testCase) string { return c.name })
	if err != nil {
		return err
	}
	if err := c.prepare(); err != nil {
		return err
	}
	defer os.RemoveAll(c.Outer())

	outcomes := make([]outcome, len(chosen))
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, one := range chosen {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outcomes[i] = c.measure(ctx, one)
			fmt.Fprint(os.Stderr, outcomes[i].row())
		})
	}
	all.Wait()

	fmt.Print(header)
	wrong := 0
	for _, o := range outcomes {
		fmt.Print(o.row())
		if len(o.faults) > 0 {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d cases are not as they should be", wrong, len(outcomes))
	}
	return ctx.Err()
}

// prepare copies the programs into the Debian folder.
func (c *campaign) prepare() (err error) {
	if c.output == "" {
		if c.output, err = os.MkdirTemp("", "allocscope-cases-"); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "results:", c.output)
	if err := os.MkdirAll(c.output, 0o700); err != nil {
		return err
	}
	c.Enter = filepath.Join(c.testdata, "peers", "inside.sh")
	return c.Prepare(filepath.Join(c.testdata, "cases"))
}

// An outcome is the result of a trace for a case, and its faults.
type outcome struct {
	testCase
	result    *summary.Summary
	grew      []string // the rows that grew most, in words
	own, job  meter.Load
	faults    []string
	firstName string
	factor    float64 // of the leak's rate, to the true one; 0: unknown
	slowdown  float64 // by allocscope's own figure; 0: unknown
}

const (
	startTimeout = time.Minute      // of a program
	settleTime   = 20 * time.Second // after which allocscope has made its tables of libraries
)

// measure runs a program and traces it.
func (c *campaign) measure(ctx context.Context, one testCase) outcome {
	o := outcome{testCase: one, result: new(summary.Summary)}
	ctx, stop := context.WithTimeout(ctx, startTimeout+2*c.duration+time.Minute)
	defer stop()

	program := c.command(ctx, one.name,
		c.Inside("LD_PRELOAD="+one.preload, "python3", one.source)...)
	pid, err := startProgram(program)
	if err == nil {
		defer func() {
			_ = program.Cancel()
			_ = program.Wait() // it was killed
		}()
		err = c.trace(ctx, pid, &o)
	}
	if err != nil {
		o.faults = append(o.faults, err.Error())
		return o
	}

	o.check(c.line(one))
	return o
}

// startProgram starts a program and waits until it is ready.
func startProgram(command *exec.Cmd) (pid int, err error) {
	output, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := command.Start(); err != nil {
		return 0, err
	}

	if _, err := fmt.Fscanf(output, "ready %d\n", &pid); err != nil {
		_ = command.Cancel()
		return 0, fmt.Errorf("the program has not started: %w", err)
	}
	return pid, nil
}

// command returns a command whose errors go to a file, and that ctx ends with all it has started.
func (c *campaign) command(ctx context.Context, name string, argv ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	harness.OwnGroup(command)
	path := filepath.Join(c.output, name+"."+filepath.Base(argv[0])+".log")
	if log, err := os.Create(path); err == nil {
		command.Stderr = log
	}
	return command
}

// trace traces a process with the defaults, and measures meanwhile.
func (c *campaign) trace(ctx context.Context, pid int, o *outcome) error {
	folder := filepath.Join(c.output, o.name)
	command := c.command(ctx, o.name, c.allocscope, "trace", "--pid", fmt.Sprint(pid),
		"--duration", c.duration.String(), "--no-tui", "--output", folder, "--force")
	if err := command.Start(); err != nil {
		return err
	}

	measuring, measured := context.WithTimeout(ctx, c.duration-settleTime)
	defer measured()
	var both sync.WaitGroup
	for pid, load := range map[int]*meter.Load{pid: &o.job, command.Process.Pid: &o.own} {
		both.Go(func() {
			time.Sleep(settleTime)
			*load = meter.Measure(measuring, pid, 0)
		})
	}
	err := command.Wait()
	measured()
	both.Wait()
	if err != nil {
		return fmt.Errorf("the trace ends with: %w", err)
	}

	result, err := harness.Summary(folder)
	if err == nil {
		o.result = result
	}
	return err
}

// line returns the place of the line that is marked, as frames have it; empty: there is none.
func (c *campaign) line(one testCase) string {
	place, err := harness.Line(filepath.Join(c.testdata, "cases", one.source),
		func(line string) bool { return strings.HasSuffix(line, "# NAMED") })
	if err != nil {
		return ""
	}
	return place + ")"
}

// check compares a result with the expected one.
func (o *outcome) check(line string) {
	fault := func(format string, values ...any) {
		o.faults = append(o.faults, fmt.Sprintf(format, values...))
	}

	if alarm := slices.Contains(alarms, o.result.Class); alarm != o.alarm {
		fault("verdict %s", o.result.Class)
	}

	grown, held := o.grown()
	if o.alarm && (len(grown) == 0 || !slices.Contains(o.rows, grown[0].Kind)) {
		fault("grows most: want %s", joined(o.rows))
	}
	if !o.alarm && held < minRowBytes {
		fault("%s: %.1f MiB", joined(o.rows), float64(held)/mib)
	}
	if o.advice != "" && !slices.ContainsFunc(o.result.Advice,
		func(a advice.Advice) bool { return a.About == o.advice }) {
		fault("no advice about %s", o.advice)
	}
	for _, row := range grown[:min(2, len(grown))] {
		o.grew = append(o.grew, fmt.Sprintf("%s %+.1f MiB", row.Kind, float64(row.DeltaBytes)/mib))
	}

	causes := o.causes()
	if len(causes) == 0 && o.alarm || len(causes) > 0 && !slices.Contains(o.diagnoses, causes[0]) {
		fault("diagnosis: want %s", joined(o.diagnoses))
	}

	if len(o.result.Suspects) > 0 {
		first := o.result.Suspects[0]
		o.firstName = fmt.Sprintf("%s (%s)", location.ReplaceAllString(first.Function, ""),
			first.Component)
	}
	if o.named && !o.isNamed(line) {
		fault("the first suspect is not at %s", strings.TrimSuffix(line, ")"))
	}

	if o.rate > 0 {
		if o.factor = o.rateOf(line) / o.rate; math.Abs(o.factor-1) > maxRateError {
			fault("its rate is %.2f times the true one", o.factor)
		}
	}

	if bound := max(maxCores, o.job.Cores*maxShareOfJob); o.own.Cores > bound {
		fault("allocscope uses %.3f of a core, more than %.3f", o.own.Cores, bound)
	}
	if o.own.RSS > maxOwnBytes {
		fault("allocscope uses %.0f MiB", float64(o.own.RSS)/mib)
	}
	if cost := o.result.Overhead; cost != nil && cost.Slowdown != nil {
		if o.slowdown = *cost.Slowdown; o.slowdown > maxSlowdown {
			fault("the job is slowed by %.1f%%", 100*o.slowdown)
		}
	}
}

// rateOf returns how fast the stacks with a line grow, in bytes a minute.
func (o *outcome) rateOf(line string) (rate float64) {
	for _, a := range o.result.Accumulating {
		if a.BytesPerMin != nil && contains(a.Stack, line) {
			rate += float64(*a.BytesPerMin)
		}
	}
	return rate
}

func contains(frames []string, line string) bool {
	return slices.ContainsFunc(frames,
		func(frame string) bool { return strings.HasSuffix(frame, line) })
}

// location matches the part of a frame besides the function and the file's own name.
var location = regexp.MustCompile(`/[^ )]*/`)

// grown returns the growth of each kind of memory, the largest first, and the bytes that the kinds
// of the case hold at the end.
func (o *outcome) grown() (kinds []summary.BreakdownRow, held int64) {
	for _, row := range o.result.Breakdown {
		if row.Process != o.process() || row.Kind == growth.KindSwapped {
			continue
		}
		at := slices.IndexFunc(kinds,
			func(k summary.BreakdownRow) bool { return k.Kind == row.Kind })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, summary.BreakdownRow{Kind: row.Kind})
		}
		kinds[at].DeltaBytes += row.DeltaBytes
		if slices.Contains(o.rows, row.Kind) {
			held += row.EndBytes
		}
	}

	slices.SortFunc(kinds,
		func(a, b summary.BreakdownRow) int { return int(b.DeltaBytes - a.DeltaBytes) })
	return kinds, held
}

// process is the process of the rows: a PID, or 0 for the tree.
func (o *outcome) process() int {
	if o.tree {
		return 0
	}
	return o.result.Process.PID
}

// causes of the growth, the largest first.
func (o *outcome) causes() (causes []string) {
	for _, d := range o.result.Diagnoses {
		if d.Process == o.process() {
			causes = append(causes, d.Cause.String())
		}
	}
	return causes
}

func (o *outcome) isNamed(line string) bool {
	if len(o.result.Suspects) == 0 {
		return false
	}
	first := o.result.Suspects[0]
	return contains(slices.Concat(first.Path, first.Callers, []string{first.Function}), line)
}

const (
	mib    = 1 << 20
	header = "| case | verdict | diagnosis | grows most | first suspect | rate, samples " +
		"| cores: allocscope, job | slow-down | RSS of allocscope | |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n"
)

func (o *outcome) row() string {
	state := "as it should be"
	if len(o.faults) > 0 {
		state = "**" + strings.Join(o.faults, "; ") + "**"
	}
	return fmt.Sprintf("| `%s`: %s | %s | %s | %s | %s | %.2f, %d | %.3f, %.2f | %.1f%% | %.0f MiB "+
		"| %s |\n", o.name, o.about, o.result.Class, strings.Join(o.causes(), ", "),
		strings.Join(o.grew, ", "), o.firstName, o.factor, o.result.Events.Samples,
		o.own.Cores, o.job.Cores, 100*o.slowdown, float64(o.own.RSS)/mib, state)
}

func joined[T ~string](words []T) string {
	var texts []string
	for _, word := range words {
		texts = append(texts, string(word))
	}
	return strings.Join(texts, " or ")
}
