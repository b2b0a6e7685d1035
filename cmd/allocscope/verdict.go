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

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/series"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/verdict"
)

// verdictFlags are the flags of `allocscope verdict`.
type verdictFlags struct {
	limit     flagvalue.Size     // none: unknown
	age       flagvalue.Point    // of the process at the first sample
	epochEnd  flagvalue.Point    // of the first pass over the data
	cycle     flagvalue.Point    // of epochs or validations
	tolerable flagvalue.Rate     // none: no growth is
	every     flagvalue.Duration // 0: the file has times
	stepTime  flagvalue.Duration // 0: a series in steps is judged in steps
	file      series.Options
	json      bool
	failOn    flagvalue.FailOn
}

func newVerdictCommand() *cobra.Command {
	var flags verdictFlags
	command := &cobra.Command{
		Use:   "verdict FILE",
		Short: "Judge whether a recorded memory series leaks",
		Long: `Verdict judges a recorded size over time: timeline.csv of a trace, a CSV file, the output
of ps, psrecord or mprof, the log of a training ("step=40 rss=9.4GB"). FILE may be - for
standard input.

Columns and units are taken from the file where it names them. GB is 10^9 bytes, GiB is 2^30.
docs/reference/verdict.md explains the verdicts.`,
		Example: `  allocscope verdict allocscope-4242-*/timeline.csv --limit 32GiB
  allocscope verdict train.log --step-time 8s --fail-on leak`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return fmt.Errorf("%s: name one (allocscope verdict FILE)",
					units.Plural(len(arguments), "file is named", "files are named"))
			}
			return nil
		},
		ValidArgsFunction: cli.Files,
		Annotations: map[string]string{
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused, exit.Found,
				exit.Inconclusive),
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return runVerdict(command, flags, arguments[0])
		},
	}

	set := command.Flags()
	set.Var(&flags.limit, "limit", "memory limit: 32GiB; adds when it is reached")
	set.Var(&flags.age, "age", "age of the process at the first sample: 2h")
	set.Var(&flags.epochEnd, "epoch-end",
		"when the first pass over the data ended or is due to end: 40m, or a step")
	set.Var(&flags.cycle, "cycle",
		"time between epochs or validations, the longer one: 30m, or steps")
	set.Var(&flags.tolerable, "tolerable", "growth that is harmless: 10MB/min, 5MB/step")
	set.StringVar(&flags.file.X, "x", "",
		"column of times or steps, by name or number (default by its usual names)")
	set.StringVar(&flags.file.Y, "y", "",
		"column of sizes, by name or number (default rss, uss, pss, memory, ...)")
	set.StringVar(&flags.file.Unit, "unit", "",
		"unit of sizes that carry none: bytes, KiB, MB, MiB, GB, GiB")
	set.StringVar(&flags.file.XUnit, "x-unit", "",
		"unit of times that carry none: s, ms, min, h, steps")
	set.Var(&flags.every, "every", "time between the rows, for a file without times")
	set.Var(&flags.stepTime, "step-time",
		"length of a step; without it a series in steps is judged in steps")
	set.BoolVar(&flags.json, "json", false, "print the verdict as JSON")
	set.Var(&flags.failOn, "fail-on",
		"exit with status 3 on a leak, and 4 where the series cannot tell: leak (confirmed) or "+
			"suspected (also suspected)")

	flagvalue.CompleteFailOn(command)
	cli.CompleteValues(command, "unit", "bytes", "KiB", "MB", "MiB", "GB", "GiB")
	cli.CompleteValues(command, "x-unit", "s", "ms", "min", "h", "steps")
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
		return exit.Usage(err)
	}

	setting, err := flags.setting(file, axis)
	if err != nil {
		return exit.Usage(err)
	}

	sizes := conclude.Sizes{RSS: file.Series, Setting: setting, Criteria: axis.Criteria()}
	verdict := summary.VerdictOf(verdict.Decide(sizes.Judge()), axis.Unit)
	if err := printVerdict(command.OutOrStdout(), path, verdict, flags); err != nil {
		return err
	}

	return flags.failOn.Check(flagvalue.Outcome{What: "the verdict", Class: verdict.Class})
}

// readSeries reads the file, or standard input for "-".
func readSeries(from io.Reader, path string, flags verdictFlags) (*series.File, error) {
	options := flags.file
	options.Every = time.Duration(flags.every).Seconds()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, exit.Refuse(err)
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

// axis converts the steps of a file to seconds if the length of a step is known.
func (f verdictFlags) axis(file *series.File) (flagvalue.Axis, error) {
	step := time.Duration(f.stepTime).Seconds()
	switch {
	case step > 0 && !file.Steps:
		return flagvalue.Axis{}, fmt.Errorf(
			"--step-time %s is for a series in steps, and this one has times "+
				"(choose its steps with --x)",
			&f.stepTime,
		)
	case step > 0:
		for i := range file.X {
			file.X[i] *= step
		}
	case file.Steps:
		return flagvalue.Axis{Unit: summary.AxisSteps}, nil
	}
	return flagvalue.Axis{Unit: summary.AxisSeconds, StepSeconds: step}, nil
}

// setting has the facts besides the series, from the flags and the file.
func (f verdictFlags) setting(
	file *series.File,
	axis flagvalue.Axis,
) (s verdict.Setting, err error) {
	s = verdict.Setting{Age: file.Age, Limit: f.limit.Bytes}
	if f.age.Text != "" {
		if s.Age, err = axis.Position("--age", f.age); err != nil {
			return s, err
		}
	}

	if f.epochEnd.Text != "" {
		end, err := axis.Position("--epoch-end", f.epochEnd)
		if err != nil {
			return s, err
		}
		s.EpochEnd = &end
	}

	if s.Cycle, err = axis.Position("--cycle", f.cycle); err != nil {
		return s, err
	}

	s.Tolerable, err = axis.Rate("--tolerable", f.tolerable)
	return s, err
}

func printVerdict(out io.Writer, path string, v summary.Verdict, flags verdictFlags) error {
	if flags.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(summary.RecordedVerdict{Schema: summary.VerdictSchema, Verdict: v})
	}
	limit := ""
	if flags.limit.Bytes > 0 {
		limit = "limit " + flags.limit.String()
	}
	_, err := fmt.Fprintln(out, strings.Join(words.VerdictResult(v, path, limit).
		Lines(console.Width(out), nil), "\n"))
	return err
}
