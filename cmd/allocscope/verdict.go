package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/export/series"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// verdictFlags are the flags of `allocscope verdict`.
type verdictFlags struct {
	limit     sizeValue     // none: unknown
	age       pointValue    // of the process at the first sample
	epochEnd  pointValue    // of the first pass over the data
	cycle     pointValue    // of epochs or validations
	tolerable rateValue     // none: no growth is
	every     durationValue // 0: the file has times
	stepTime  durationValue // 0: a series in steps is judged in steps
	file      series.Options
	json      bool
	failOn    failOnValue
}

func newVerdictCommand() *cobra.Command {
	var flags verdictFlags
	command := &cobra.Command{
		Use:   "verdict FILE",
		Short: "Say whether a recorded memory series leaks",
		Long: `Verdict judges a size over time that something else has recorded: timeline.csv of a trace, a CSV file, the output of ps,
psrecord or mprof, the log of a training ("step=40 rss=9.4GB"). FILE may be - for standard input.

Columns and units are taken from the file where it names them. GB is 10^9 bytes, GiB is 2^30.
What the verdicts mean is told in docs/verdict.md.`,
		Example: `  allocscope verdict allocscope-4242-*/timeline.csv --limit 32GiB
  allocscope verdict train.log --step-time 8s --fail-on leak`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return runVerdict(command, flags, arguments[0])
		},
	}
	set := command.Flags()
	set.Var(&flags.limit, "limit", "size that kills the process: 32GiB; says when it is reached")
	set.Var(&flags.age, "age", "age of the process at the first sample: 2h")
	set.Var(&flags.epochEnd, "epoch-end", "when the first pass over the data ended or is due to end: 40m, or a step")
	set.Var(&flags.cycle, "cycle", "time between epochs or validations, the longer one: 30m, or steps")
	set.Var(&flags.tolerable, "tolerable", "growth that is harmless: 10MB/min, 5MB/step")
	set.StringVar(&flags.file.X, "x", "", "column of times or steps, by name or number (default by its usual names)")
	set.StringVar(&flags.file.Y, "y", "", "column of sizes, by name or number (default rss, uss, pss, memory, ...)")
	set.StringVar(&flags.file.Unit, "unit", "", "unit of sizes that carry none: bytes, KiB, MB, MiB, GB, GiB")
	set.StringVar(&flags.file.XUnit, "x-unit", "", "unit of times that carry none: s, ms, min, h, steps")
	set.Var(&flags.every, "every", "time between the rows, for a file without times")
	set.Var(&flags.stepTime, "step-time", "how long a step takes; without it a series in steps is judged in steps")
	set.BoolVar(&flags.json, "json", false, "print the verdict as JSON")
	set.Var(&flags.failOn, "fail-on", "exit with status 3 if the verdict is this: leak, suspected (or worse)")
	return command
}

func runVerdict(command *cobra.Command, flags verdictFlags, path string) error {
	file, err := readSeries(command.InOrStdin(), path, flags)
	if err != nil {
		return err
	}
	slog.Debug(fmt.Sprintf("read %d samples, and %d rows without a size", len(file.X), file.Gaps))
	axis, err := flags.axis(file)
	if err != nil {
		return err
	}
	setting, err := flags.setting(file, axis)
	if err != nil {
		return err
	}
	verdict := summary.VerdictOf(growth.Judge(file.Series, setting, axis.criteria()), axis.unit)
	if err := printVerdict(command.OutOrStdout(), verdict, flags); err != nil {
		return err
	}
	return flags.failOn.check(outcome{"the verdict", verdict.Class})
}

// readSeries reads the file, or standard input for "-".
func readSeries(from io.Reader, path string, flags verdictFlags) (*series.File, error) {
	options := flags.file
	options.Every = time.Duration(flags.every).Seconds()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	read, err := series.Read(from, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return read, nil
}

// A judgedAxis is the X of the series that is judged.
type judgedAxis struct {
	unit summary.Axis
	step float64 // seconds in one step of the file; 0: it has seconds, or the length of a step is unknown
}

// axis turns the steps of a file to seconds if it is known how long one takes.
func (f verdictFlags) axis(file *series.File) (judgedAxis, error) {
	step := time.Duration(f.stepTime).Seconds()
	switch {
	case step > 0 && !file.Steps:
		return judgedAxis{}, fmt.Errorf("--step-time %s is for a series in steps, and this one has times (choose its steps with --x)", &f.stepTime)
	case step > 0:
		for i := range file.X {
			file.X[i] *= step
		}
	case file.Steps:
		return judgedAxis{unit: summary.AxisSteps}, nil
	}
	return judgedAxis{unit: summary.AxisSeconds, step: step}, nil
}

func (a judgedAxis) criteria() growth.Criteria {
	if a.unit == summary.AxisSteps {
		return growth.InSteps()
	}
	return growth.InSeconds()
}

// setting is what the flags and the file tell besides the series.
func (f verdictFlags) setting(file *series.File, axis judgedAxis) (s growth.Setting, err error) {
	s = growth.Setting{Age: file.Age, Limit: f.limit.bytes}
	if f.age.text != "" {
		if s.Age, err = axis.place("--age", f.age); err != nil {
			return s, err
		}
	}
	if f.epochEnd.text != "" {
		end, err := axis.place("--epoch-end", f.epochEnd)
		if err != nil {
			return s, err
		}
		s.EpochEnd = &end
	}
	if s.Cycle, err = axis.place("--cycle", f.cycle); err != nil {
		return s, err
	}
	s.Tolerable, err = axis.rate("--tolerable", f.tolerable)
	return s, err
}

// place is the value of a flag on the axis.
func (a judgedAxis) place(flag string, p pointValue) (float64, error) {
	switch {
	case p.timed && a.unit == summary.AxisSteps:
		return 0, fmt.Errorf("%s %s is a time, and the series is in steps (give steps, or --step-time)", flag, p.text)
	case !p.timed && a.step > 0:
		return p.number * a.step, nil
	}
	return p.number, nil
}

// rate is the value of a flag in bytes per X.
func (a judgedAxis) rate(flag string, r rateValue) (float64, error) {
	switch {
	case r.text == "":
		return 0, nil
	case r.per == 0 && a.unit == summary.AxisSteps:
		return r.bytes, nil
	case r.per == 0 && a.step > 0:
		return r.bytes / a.step, nil
	case r.per == 0:
		return 0, fmt.Errorf("%s %s is by step, and the series has no steps (give it by s, min or h)", flag, r.text)
	case a.unit == summary.AxisSteps:
		return 0, fmt.Errorf("%s %s is by time, and the series is in steps (give it by step, or --step-time)", flag, r.text)
	}
	return r.bytes / r.per.Seconds(), nil
}

func printVerdict(out io.Writer, v summary.Verdict, flags verdictFlags) error {
	if flags.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	}
	limit := fmt.Sprintf("the limit of %s is reached", &flags.limit)
	_, err := fmt.Fprintln(out, strings.Join(words.VerdictLines(v, limit), "\n  "))
	return err
}

// failOnValue is a flag that takes the verdict that is to be a failure: leak or suspected.
type failOnValue string

// Type names the value in the help text.
func (f *failOnValue) Type() string { return "verdict" }

func (f *failOnValue) String() string { return string(*f) }

// Set takes one of the two.
func (f *failOnValue) Set(text string) error {
	if text != "leak" && text != "suspected" {
		return fmt.Errorf("%q is neither leak nor suspected", text)
	}
	*f = failOnValue(text)
	return nil
}

// An outcome is a verdict, and what it is on.
type outcome struct {
	what  string // "the verdict"
	class growth.Class
}

// check gives a *finding if one of the verdicts is a failure: the worst of them, the first of those that are as bad.
func (f *failOnValue) check(outcomes ...outcome) error {
	var worst outcome
	for _, o := range outcomes {
		if o.class.Severity() > worst.class.Severity() {
			worst = o
		}
	}
	switch {
	case worst.class == growth.ClassLeak && *f != "", worst.class == growth.ClassSuspected && *f == "suspected":
		return &finding{fmt.Sprintf("%s is %s (--fail-on %s)", worst.what, worst.class, *f)}
	}
	return nil
}

// A finding is a result that the user wants to be a failure: the exit status is 3.
type finding struct{ text string }

func (f *finding) Error() string { return f.text }
