package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/export/explain"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
)

// objectsFlags are the flags of `allocscope objects`.
type objectsFlags struct {
	every    flagvalue.Duration // 0: one census
	duration flagvalue.Duration // 0: until Ctrl-C
	keepers  string             // a type; empty: no search
	all      bool
	json     bool
}

const (
	maxListedTypes  = 20 // without --all
	maxListedGroups = 20 // of tensors
	keeperSamples   = 16
	maxKeeperTime   = time.Minute // of CPU time: somebody waits for this search, and can end it
)

func newObjectsCommand() *cobra.Command {
	var choice target.Choice
	var flags objectsFlags
	command := &cobra.Command{
		Use:   "objects PID",
		Short: "Count the objects of a Python process by type, and find who keeps them",
		Long: `Objects counts what a running Python process has in its memory: objects by type, and the
storages of PyTorch's tensors. With --every it counts repeatedly, and prints what grows.
With --keepers it finds the variables that keep the objects of a type.

It reads the process's memory and its programs' files from outside, and attaches nothing:
CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH are enough. The process is
neither stopped nor changed.`,
		Example: `  sudo allocscope objects 4242
  sudo allocscope objects 4242 --every 30s
  sudo allocscope objects 4242 --keepers PIL.Image.Image`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			pid, err := choice.Resolve(arguments, "allocscope objects", true)
			if err == nil {
				err = flags.check()
			}
			if err != nil {
				return err
			}
			return runObjects(command.Context(), command.OutOrStdout(), pid, flags)
		},
		Annotations: map[string]string{
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused),
		},
	}

	set := command.Flags()
	choice.AddPID(set, "process to read, as the argument PID")
	choice.AddName(set)
	set.Var(&flags.every, "every", "count again after each such time, and print what grows: 30s, 5m")
	set.VarP(&flags.duration, "duration", "d", "how long to count with --every (default until Ctrl-C)")
	set.StringVar(&flags.keepers, "keepers", "",
		"find who keeps the objects of a type: PIL.Image.Image, or Image where no other type ends so")
	set.BoolVarP(&flags.all, "all", "a", false,
		fmt.Sprintf("list all types, not only the %d largest", maxListedTypes))
	set.BoolVar(&flags.json, "json", false, "print JSON; with --every one document a line")
	return command
}

func (f *objectsFlags) check() error {
	switch {
	case f.duration != 0 && f.every == 0:
		return exit.Usage(errors.New("--duration is for --every"))
	case f.every != 0 && time.Duration(f.every) < time.Second:
		return exit.Usage(fmt.Errorf("--every %s is less than 1s", &f.every))
	}
	return nil
}

// objectCounter counts the objects of a process, once or repeatedly.
type objectCounter struct {
	flags   objectsFlags
	out     io.Writer
	process *process.Process
	heap    *objects.Heap
	began   time.Time
	first   *objects.Census // nil: none was taken
}

func runObjects(ctx context.Context, out io.Writer, pid int, flags objectsFlags) error {
	p, err := process.Open(pid)
	if err != nil {
		return exit.Refuse(err)
	}
	defer p.Close()
	heap, err := objects.Open(p)
	if err != nil {
		return exit.Refuse(err)
	}
	defer heap.Close()

	c := objectCounter{flags: flags, out: out, process: p, heap: heap, began: time.Now()}
	if flags.duration != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(flags.duration))
		defer cancel()
	}
	return c.run(ctx)
}

// run counts until it is done. The end of ctx is the end after the first census, and an error
// before.
func (c *objectCounter) run(ctx context.Context) error {
	for {
		err := c.count(ctx)
		switch {
		case err != nil && c.first == nil:
			return c.refusal(err)
		case err != nil && ctx.Err() == nil && !c.process.Alive():
			slog.Info("the process has exited")
			return nil
		case err != nil && ctx.Err() == nil:
			return err
		case c.flags.every == 0:
			return err
		}

		wait := time.NewTimer(time.Duration(c.flags.every))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-c.process.Exited(ctx.Done()):
			wait.Stop()
			if ctx.Err() == nil {
				slog.Info("the process has exited")
			}
			return nil
		case <-wait.C:
		}
	}
}

// refusal is why nothing can be counted. An interpreter is found by the files that the process has
// mapped: where these cannot be opened, that is the reason.
func (c *objectCounter) refusal(err error) error {
	var known *exit.Error
	if errors.As(err, &known) {
		return err
	}
	if maps, mapsErr := c.process.Maps(); mapsErr == nil && errors.Is(err, objects.ErrNoPython) {
		i := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.Execute && m.IsFile() })
		if i >= 0 {
			f, openErr := c.process.OpenMapped(maps[i])
			if openErr != nil {
				err = openErr
			} else {
				_ = f.Close()
			}
		}
	}
	return exit.Refuse(fmt.Errorf("count objects of PID %d: %w", c.process.PID, err))
}

// count takes a census, and prints it.
func (c *objectCounter) count(ctx context.Context) error {
	at := time.Since(c.began)
	counted, err := c.heap.Census(ctx, objects.CensusOptions{Samples: keeperSamples, Before: c.first})
	if err != nil {
		return err
	}
	counted.Elapsed = at

	var before *census.Result
	if c.first != nil {
		before = &c.first.Result
	} else {
		c.first = counted
	}
	result := summary.Counted{
		Schema: summary.CountedSchema, Objects: summary.ObjectsOf(before, &counted.Result),
		Process: summary.Process{
			PID: c.process.PID, Command: c.process.Command(), Executable: c.process.Executable,
			Arguments: c.process.Arguments,
		},
	}
	if c.flags.keepers != "" {
		if result.Keepers, err = c.search(ctx, counted); err != nil {
			return err
		}
	}

	if c.flags.json {
		encoder := json.NewEncoder(c.out)
		encoder.SetEscapeHTML(false)
		if c.flags.every == 0 {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(result)
	}
	return c.print(counted, &result, before != nil)
}

// search finds who keeps the objects of the type of --keepers.
func (c *objectCounter) search(
	ctx context.Context, counted *objects.Census,
) ([]summary.Keeper, error) {
	name, err := typeNamed(counted, c.flags.keepers)
	if err != nil {
		return nil, err
	}
	samples := counted.Samples[name]
	if len(samples) == 0 {
		return []summary.Keeper{}, nil
	}
	found, err := c.heap.Search(ctx, []objects.Suspect{{Type: name, Objects: samples}}, maxKeeperTime)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Elapsed = time.Since(c.began)
		found[i].Collections = -1 // since when is said of traces alone
	}
	return summary.KeepersOf(found), nil
}

// maxSuggested is how many types are named where a name is not that of one.
const maxSuggested = 5

// typeNamed returns the name of the type that a user means: the whole name, or its last part.
func typeNamed(counted *objects.Census, name string) (string, error) {
	var similar []string
	for _, t := range counted.Types {
		if t.Type == name {
			return name, nil
		}
		if strings.HasSuffix(t.Type, "."+name) {
			similar = append(similar, t.Type)
		}
	}
	switch len(similar) {
	case 0:
		return "", exit.Refuse(fmt.Errorf("--keepers %q: the process has no objects of such a type "+
			"(allocscope objects PID --all lists the types)", name))
	case 1:
		return similar[0], nil
	}
	return "", exit.Refuse(fmt.Errorf("--keepers %q: that may be %s", name,
		strings.Join(similar[:min(maxSuggested, len(similar))], ", or ")))
}

// print prints a census: the largest types, or those that have grown since the first one.
func (c *objectCounter) print(counted *objects.Census, result *summary.Counted, isAgain bool) error {
	if !isAgain {
		fmt.Fprintf(c.out, "%s (PID %d), Python %s: %s of memory read in %s of CPU time\n",
			result.Process.Command, result.Process.PID, result.Objects.Python,
			units.Bytes(float64(counted.ReadBytes)), units.Milliseconds(counted.Took.Seconds()))
		for _, note := range words.ObjectsNotes(result.Objects) {
			fmt.Fprintln(c.out, note)
		}
		if err := c.printTypes(counted.Types); err != nil {
			return err
		}
		if err := c.printTensors(result.Objects); err != nil {
			return err
		}
	} else if err := c.printGrowth(counted, result.Objects); err != nil {
		return err
	}
	return c.printKeepers(result.Keepers)
}

func (c *objectCounter) printTypes(types []census.TypeCount) error {
	shown := types
	if !c.flags.all {
		shown = types[:min(maxListedTypes, len(types))]
	}
	fmt.Fprintln(c.out)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "objects\tbytes\t  type\n")
	for _, t := range shown {
		margin := ""
		if t.Margin > 0 {
			margin = " ± " + explain.Thousands(units.Round(t.Margin))
		}
		fmt.Fprintf(w, "%s%s\t%s\t  %s\n", explain.Thousands(units.Round(t.Count)), margin,
			units.Bytes(t.Bytes), units.Name(t.Type))
	}
	if n := len(types) - len(shown); n > 0 {
		fmt.Fprintf(w, "\t\t  and %s (--all)\n", units.Plural(n, "other type", "other types"))
	}
	return w.Flush()
}

func (c *objectCounter) printTensors(o *summary.Objects) error {
	rows := words.TensorRows(o)
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "tensors\tstorages\tbytes\t  dtype, shape of the largest, device\n")
	for _, row := range rows[:min(maxListedGroups, len(rows))] {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", row.Tensors, row.Storages,
			units.Bytes(float64(row.Bytes)), row.What)
	}
	if n := len(rows) - maxListedGroups; n > 0 {
		fmt.Fprintf(w, "\t\t\t  and %s\n", units.Plural(n, "other group", "other groups"))
	}
	return w.Flush()
}

// printGrowth prints what has grown since the first census: types, and groups of tensors.
func (c *objectCounter) printGrowth(counted *objects.Census, o *summary.Objects) error {
	grown := census.Grown(&c.first.Result, &counted.Result)
	span := counted.Elapsed - c.first.Elapsed
	if len(grown) == 0 {
		fmt.Fprintf(c.out, "\nAfter %s: no type has grown\n", units.Duration(span.Round(time.Second)))
		return c.printTensorGrowth(o)
	}

	fmt.Fprintf(c.out, "\nAfter %s, since the first count:\n\n", units.Duration(span.Round(time.Second)))
	shown := grown
	if !c.flags.all {
		shown = grown[:min(maxListedTypes, len(grown))]
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "objects\tgrowth\tbytes\t  type\n")
	for _, t := range shown {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", explain.Thousands(units.Round(t.After)),
			explain.PerMinute(t.PerMinute), units.Signed(t.Bytes), units.Name(t.Type))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return c.printTensorGrowth(o)
}

func (c *objectCounter) printTensorGrowth(o *summary.Objects) error {
	grown := slices.DeleteFunc(words.TensorRows(o), func(row words.TensorRow) bool {
		return row.Growth <= 0
	})
	if len(grown) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "tensors\tmore\tbytes\t  dtype, shape of the largest, device\n")
	for _, row := range grown[:min(maxListedGroups, len(grown))] {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", row.Tensors, row.Gained, row.GrowthText(), row.What)
	}
	return w.Flush()
}

func (c *objectCounter) printKeepers(keepers []summary.Keeper) error {
	if c.flags.keepers == "" {
		return nil
	}
	if len(keepers) == 0 {
		_, err := fmt.Fprintf(c.out, "\nThere are no objects of type %s that were not there before\n",
			units.Name(c.flags.keepers))
		return err
	}
	for _, k := range keepers {
		fmt.Fprintf(c.out, "\nWho keeps %s, by %s:\n\n", k.Type,
			units.Plural(k.Samples, "sample", "samples"))
		for _, line := range words.KeeperLines(k) {
			fmt.Fprintln(c.out, "  "+line)
		}
	}
	return nil
}
