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
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/objects/worker"
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
	maxObjectsTime  = 10 * time.Second // CPU time of a count, and of a search
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
	choice.AddPID(command, "process to read, as the argument PID")
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
	image   process.Image // of the program that is counted
	worker  worker.Worker
	began   time.Time
	first   *objects.Census // that was printed; nil: none was
	kept    string          // the whole name of the type of --keepers; empty: not known yet
}

func runObjects(ctx context.Context, out io.Writer, pid int, flags objectsFlags) error {
	p, err := process.Open(pid)
	if err != nil {
		return exit.Refuse(err)
	}
	defer p.Close()
	stat, err := p.Stat()
	if err != nil {
		return exit.Refuse(err)
	}
	if err := trace.VolunteerForOOM(); err != nil { // the child inherits it
		slog.Warn(err.Error())
	}

	if !flags.json {
		out = console.Wrapped(out)
	}
	c := objectCounter{flags: flags, out: out, process: p, image: stat.Image, began: time.Now()}
	defer c.worker.Close()
	c.worker.Hurry()
	if flags.duration != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(flags.duration))
		defer cancel()
	}
	return c.run(ctx)
}

// run counts until it is done. The end of ctx or of the program is the end after the first count,
// and an error before.
func (c *objectCounter) run(ctx context.Context) error {
	for {
		err := c.count(ctx)
		switch {
		case err != nil && ctx.Err() != nil && c.first == nil:
			return fmt.Errorf("count objects of PID %d: the end came before the first count",
				c.process.PID)
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && c.first != nil && c.ended() != nil:
			slog.Info(c.ended().Error())
			return nil
		case err != nil || c.flags.every == 0:
			return err
		}

		wait := time.NewTimer(time.Duration(c.flags.every))
		select {
		case <-ctx.Done():
		case <-c.process.Exited(ctx.Done()):
		case <-wait.C:
			continue
		}
		wait.Stop()
		if ctx.Err() == nil {
			slog.Info(c.ended().Error())
		}
		return nil
	}
}

// ended is why nothing of the program is left to be counted; nil: it goes on.
func (c *objectCounter) ended() error {
	if !c.process.Alive() {
		return errors.New("the process has exited")
	}
	stat, err := c.process.Stat()
	if err != nil || stat.Image.IsZero() || stat.Image == c.image {
		return nil
	}
	_ = c.process.Refresh() // the name of the program that was counted will do, too
	return fmt.Errorf("the process executes another program now: %s", c.process.Command())
}

// ask asks the process that reads. It is an error if the program has ended meanwhile: the answer
// may be about another one.
func (c *objectCounter) ask(
	ctx context.Context, request worker.Request,
) (*worker.Response, error) {
	request.PID = c.process.PID
	answer, err := c.worker.Ask(ctx, request)
	if ended := c.ended(); ended != nil {
		return nil, ended
	}
	return answer, err
}

// refusal is why a census was not taken. Before the first one it is why nothing can be counted: an
// interpreter is found by the files that the process has mapped, and these may not open.
func (c *objectCounter) refusal(err error) error {
	if c.first != nil {
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
	options := objects.CensusOptions{Limit: maxObjectsTime}
	if c.flags.keepers != "" {
		options.Samples = keeperSamples
	}
	answer, err := c.ask(ctx, worker.Request{Census: &options})
	if err != nil {
		return c.refusal(err)
	}
	counted := answer.Census
	counted.Elapsed = at

	var before *census.Result
	if c.first != nil {
		before = &c.first.Result
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
		err = c.printJSON(&result)
	} else {
		err = c.print(counted, &result)
	}
	if c.first == nil && err == nil {
		c.first = counted
	}
	return err
}

func (c *objectCounter) printJSON(result *summary.Counted) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	if c.flags.every == 0 {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(result)
}

// search finds who keeps the objects of the type of --keepers. The first count shows which type is
// meant: later, objects of another one may have such a name, and this one may have none.
func (c *objectCounter) search(
	ctx context.Context, counted *objects.Census,
) (keepers []summary.Keeper, err error) {
	if c.kept == "" {
		if c.kept, err = typeNamed(counted, c.flags.keepers); err != nil {
			return nil, err
		}
	}
	samples := counted.Samples[c.kept]
	if len(samples) == 0 {
		return []summary.Keeper{}, nil
	}
	answer, err := c.ask(ctx, worker.Request{
		Suspects: []objects.Suspect{{Type: c.kept, Objects: samples}}, Limit: maxObjectsTime,
	})
	if err != nil {
		return nil, err
	}
	found := answer.Searches
	for i := range found {
		found[i].Elapsed = time.Since(c.began)
		found[i].Collections = -1 // since when is said of traces alone
		for _, p := range found[i].Paths {
			for n := range p.Links {
				p.Links[n].Readings = nil // no trace continues this
			}
		}
	}
	return summary.KeepersOf(found), nil
}

// maxSuggested is how many types are named where a name is not the name of a type.
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
func (c *objectCounter) print(counted *objects.Census, result *summary.Counted) error {
	if c.first == nil {
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
	return c.printKeepers(counted, result.Keepers)
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
			margin = " ± " + units.Thousands(units.Round(t.Margin))
		}
		fmt.Fprintf(w, "%s%s\t%s\t  %s\n", units.Thousands(units.Round(t.Count)), margin,
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

// printGrowth prints the growth since the first census: types, and groups of tensors.
func (c *objectCounter) printGrowth(counted *objects.Census, o *summary.Objects) error {
	grown := census.Grown(&c.first.Result, &counted.Result)
	span := units.Duration((counted.Elapsed - c.first.Elapsed).Round(time.Second))
	if len(grown) == 0 {
		fmt.Fprintf(c.out, "\nAfter %s: no type has grown\n", span)
		return c.printTensorGrowth(o)
	}

	fmt.Fprintf(c.out, "\nAfter %s, since the first count:\n\n", span)
	shown := grown
	if !c.flags.all {
		shown = grown[:min(maxListedTypes, len(grown))]
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "objects\tgrowth\tbytes\t  type\n")
	for _, t := range shown {
		fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", units.Thousands(units.Round(t.After)),
			units.PerMinute(t.PerMinute), units.Signed(t.Bytes), units.Name(t.Type))
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

func (c *objectCounter) printKeepers(counted *objects.Census, keepers []summary.Keeper) error {
	if c.flags.keepers == "" {
		return nil
	}
	if len(keepers) == 0 {
		text := "There are no objects of type %s now"
		if slices.ContainsFunc(counted.Types, func(t census.TypeCount) bool { return t.Type == c.kept }) {
			text = "There are no objects of type %s that the first count has not seen"
		}
		_, err := fmt.Fprintf(c.out, "\n"+text+"\n", units.Name(c.kept))
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
