package trace

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/pflag"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
)

const (
	maxKindLines     = 6 // of the breakdown of the process; the other kinds are one line
	maxTreeKindLines = 3 // of the breakdown of its tree
	maxGPUStacks     = 5 // of each process
	maxUndecided     = 3
	maxTableRows     = 10 // of each table
)

// A Print is how a result is printed.
type Print struct {
	// Quiet prints the verdict alone, and Details the numbers behind the result, too.
	Quiet, Details bool
	Color          console.Color
}

// OutputFlags returns the values of the flags --quiet and --color, which all commands have.
func OutputFlags(set *pflag.FlagSet) (quiet bool, color console.Color) {
	if flag := set.Lookup(cli.QuietFlag); flag != nil {
		quiet = flag.Value.String() == "true"
	}
	if flag := set.Lookup(cli.ColorFlag); flag != nil {
		if value, ok := flag.Value.(*console.Color); ok {
			color = *value
		}
	}
	return quiet, color
}

// PrintResult prints the result of a trace in at most fifteen lines.
func PrintResult(out io.Writer, s *summary.Summary, place words.Place, how Print) error {
	result := words.ResultOf(s, place)
	paint := func(name string) string { return name }
	if how.Color.Enabled(out) {
		style := ansi.NewStyle().Bold().ForegroundColor(console.ColorOf(result.Class))
		paint = style.Styled
	}

	lines := result.Lines(console.Width(out), paint)
	if how.Quiet || isBrief(s) && !how.Details {
		lines = lines[:1]
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	if err == nil && how.Details {
		err = PrintDetails(out, s, place.Dir)
	}
	return err
}

// isBrief reports whether a program of `allocscope run` has ended too soon to be judged.
func isBrief(s *summary.Summary) bool {
	const brief = 1 // second
	return s.Launched && s.Ended == summary.EndedExit && s.DurationS < brief
}

// PrintDetails prints the numbers behind a result.
func PrintDetails(out io.Writer, s *summary.Summary, dir string) error {
	whole := out // for commands
	out = console.Wrapped(out)
	fmt.Fprintf(out, "\n%s (PID %d), %s, %s\n", s.Process.Command, s.Process.PID,
		units.Seconds(s.DurationS), words.Ended(s))
	for _, line := range slices.Concat(words.Diagnoses(s), words.OutlierDetails(s.Outlier)) {
		fmt.Fprintln(out, line)
	}

	lines := slices.Concat(words.Sizes(s), words.SpikeLines(s.SpikeMemory), words.OverheadLines(s))
	if len(lines) > 0 {
		fmt.Fprintf(out, "\n%s\n", strings.Join(lines, "\n"))
	}

	if err := printBreakdown(out, s); err != nil {
		return err
	}

	for _, warning := range words.Warnings(s) {
		fmt.Fprintf(out, "warning: %s\n", warning)
	}

	title := "Top suspects, each with its common call site"
	if !s.Class.IsFlat() { // else there is no growth of which they have a share
		if err := printSuspects(out, s.Suspects, title, "of RSS growth"); err != nil {
			return err
		}
	}

	for _, line := range words.Undecided(s.Accumulating, maxUndecided) {
		fmt.Fprintln(out, line)
	}

	if err := printStacks(out, s); err != nil {
		return err
	}

	if err := printObjects(out, s); err != nil {
		return err
	}

	for _, d := range s.GPUMemory {
		if err := printGPU(out, d); err != nil {
			return err
		}
	}

	return printNext(whole, dir)
}

// printNext prints the commands that show more.
func printNext(out io.Writer, dir string) error {
	_, err := fmt.Fprintf(out, "\nFiles are in %s; %s is the report. Next:\n\n"+
		"    allocscope view %s\n    go tool pprof -top %s\n", dir, folder.ReportFile,
		words.ShellQuote(dir), words.ShellQuote(filepath.Join(dir, folder.GrowthFile)))
	return err
}

// printBreakdown prints the parts of the growth of RSS, of the process and of its tree, and the
// advice.
func printBreakdown(out io.Writer, s *summary.Summary) error {
	own, resident := words.BreakdownOf(s.Breakdown, s.Process.PID), s.MainResident()
	if len(own.Kinds) > 0 {
		fmt.Fprintf(out, "\nWhat the growth of RSS is made of (PID %d: %s):\n\n", s.Process.PID,
			units.Signed(own.Sum().Delta))
		err := printKinds(out, own, maxKindLines, "RSS, as the kernel counts", resident)
		if err != nil {
			return err
		}

		if !resident.HeapTraced {
			fmt.Fprintln(out, words.HeapNotAttached(s.Process.PID))
		}
	}

	if others := words.OtherProcesses(s); others > 0 {
		tree := words.BreakdownOf(s.Breakdown, 0)
		fmt.Fprintf(out, "\n%s (%s):\n\n", words.Tree(others), units.Signed(tree.Sum().Delta))
		ofTree := summary.Resident{HeapTraced: resident.HeapTraced}
		if err := printKinds(out, tree, maxTreeKindLines, "all", ofTree); err != nil {
			return err
		}
	}

	if lines, sum, ok := words.ContainerLines(s.Container); ok {
		fmt.Fprintf(out, "\n%s (%s):\n\n", words.ContainerTitle(s.Container), units.Signed(sum.Delta))
		if err := printLines(out, lines, "charged, as the kernel counts", sum); err != nil {
			return err
		}
	}

	printAdvice(out, s)
	return nil
}

// printKinds prints a line for each of so many kinds, one for the others, one for unexplained
// memory, and their sum.
func printKinds(out io.Writer, b words.Breakdown, kinds int, all string, p summary.Resident) error {
	return printLines(out, b.Lines(kinds, p), all, b.Sum())
}

func printLines(out io.Writer, lines []words.BreakdownLine, all string, sum words.KindSum) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "growth\t± 95%\tat the end\t  what\n")
	for _, line := range append(lines, words.BreakdownLine{Label: all, KindSum: sum}) {
		margin := ""
		if line.Error > 0 {
			margin = units.Bytes(line.Error)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", units.Signed(line.Delta), margin,
			units.Bytes(line.End), line.Label)
	}
	return w.Flush()
}

func printAdvice(out io.Writer, s *summary.Summary) {
	if len(s.Advice) > 0 {
		fmt.Fprintln(out)
	}
	for _, line := range words.Advice(s) {
		fmt.Fprintf(out, "advice: %s\n", line)
	}
}

// printSuspects prints the code that accumulates, by component. of names the growth of which each
// has a share.
func printSuspects(out io.Writer, suspects []summary.Suspect, title, of string) error {
	if len(suspects) == 0 {
		return nil
	}

	fmt.Fprintf(out, "\n%s:\n\n", title)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "MiB/min\t%s\tstacks\t  component: call site\n", of)

	for _, s := range suspects {
		share := "-"
		if s.Share != nil {
			share = units.WholePercent(*s.Share)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t  %s: %s\n", units.MiBPerMinute(&s.BytesPerMin), share,
			s.Stacks, s.Component, words.Suspect(s))
	}

	return w.Flush()
}

// printStacks prints the stacks that grew since the baseline.
func printStacks(out io.Writer, s *summary.Summary) error {
	if len(s.Accumulating) == 0 {
		_, err := fmt.Fprintf(out, "\n%s\n", words.NothingAccumulated(s))
		return err
	}

	bursts := words.FromBursts(s.Overhead)
	if bursts != "" {
		bursts = " (heap from " + bursts + ")"
	}

	fmt.Fprintf(out, "\n%s%s:\n\n", words.StacksTitle(s), bursts)
	return printAccumulating(out, s.Accumulating[:min(maxTableRows, len(s.Accumulating))])
}

func printAccumulating(out io.Writer, stacks []summary.Accumulation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "MiB/min\tshare\tbytes\tobjects\ttrend\t  where\n")
	for _, a := range stacks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", units.MiBPerMinute(a.BytesPerMin),
			units.WholePercent(a.Share), units.Bytes(float64(a.Bytes)),
			units.Count(float64(a.Objects)), cmp.Or(string(a.Trend), "-"), words.Where(a))
	}
	return w.Flush()
}

// printGPU prints the GPU memory of a process.
func printGPU(out io.Writer, d summary.GPUMemory) error {
	fmt.Fprintf(out, "\nGPU memory (PID %d):\n\n", d.Process)
	for _, line := range words.GPULines(d) {
		fmt.Fprintln(out, line)
	}

	if err := printGPUBreakdown(out, d); err != nil {
		return err
	}

	title := "Top suspects on the GPU, each with its common call site"
	if err := printSuspects(out, d.Suspects, title, "of the growth"); err != nil {
		return err
	}

	if len(d.Accumulating) == 0 {
		return nil
	}

	fmt.Fprint(out, "\nStacks that grew on the GPU since the baseline:\n\n")
	return printAccumulating(out, d.Accumulating[:min(maxGPUStacks, len(d.Accumulating))])
}

// printGPUBreakdown prints the parts of GPU memory, at the baseline and the end.
func printGPUBreakdown(out io.Writer, d summary.GPUMemory) error {
	sums, all := words.GPUSums(d)
	if len(sums) == 0 {
		return nil
	}

	fmt.Fprintf(out, "\nWhat GPU memory is made of, since %s:\n\n", units.Seconds(d.BaselineS))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "at the baseline\tat the end\tgrowth\t  what\n")

	printRow := func(s words.GPUSum, what string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", units.Bytes(s.Start), units.Bytes(s.End),
			units.Signed(s.Delta()), what)
	}

	for _, s := range sums {
		printRow(s, s.Label())
	}

	printRow(all, words.GPUTotalLabel(d))
	return w.Flush()
}
