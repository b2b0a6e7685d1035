// Command truth compares the answers of allocscope with truths that others have established: leaks
// that upstream has fixed and distributions still ship, the test programs of leak checkers,
// CPython's regression tests, memory of a known kind, and jobs of each kind that users report.
// `make test-truth` runs it. Its results are in results.json, of which docs/reference/truth.md is
// made. `make test-sid` runs the part about the newest runtimes, for a section of docs/support.md.
package main

//go:generate go run . -page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

// A campaign has the settings that all parts share.
type campaign struct {
	allocscope string
	testdata   string        // the folder with the project's own programs
	sources    string        // the folder that the script sources prints
	output     string        // a folder for the traces; it stays
	duration   time.Duration // of a trace of a leak or of a regression test
	slice      bool          // a few of all
	newest     string        // the folder that testdata/newest.sh prints
	keepers    string        // the test program of package tracer/objects
	pythons    map[string][]string
}

// A task is one program with a known truth, and how to measure the answer about it.
type task struct {
	Row
	measure func(ctx context.Context, c *campaign, r *Row) error
}

// A part has its name and its tasks.
type part struct {
	name  string
	tasks func(c *campaign) []task
}

// parts are the parts of the campaign, in the order of the page.
var parts = []part{
	{"leaks", leakTasks},
	{"reachability", blockTasks},
	{"false alarms", loopTasks},
	{"kinds", stressorTasks},
	{"jobs", jobTasks},
	{newest, newestTasks},
}

func main() {
	var c campaign
	flag.StringVar(&c.allocscope, "allocscope", "bin/allocscope", "the program")
	flag.StringVar(&c.testdata, "testdata", "testdata", "the project's own programs")
	flag.StringVar(&c.sources, "sources", "", "the folder that the script sources prints")
	flag.StringVar(&c.output, "output", "", "a folder for the traces; it is not removed")
	flag.DurationVar(&c.duration, "duration", 5*time.Minute, "of a trace")
	flag.BoolVar(&c.slice, "slice", false, "a few of all, for a minute each")
	flag.StringVar(&c.newest, "newest", "", "the folder that testdata/newest.sh prints")
	flag.StringVar(&c.keepers, "keepers", "", "the test program of package tracer/objects")
	page := flag.Bool("page", false, "only write the pages, of the results")
	chosen := flag.String("parts", "", "names of parts, with commas between them (default all)")
	names := flag.String("programs", "", "names of programs, in all their forms, with spaces (default all)")
	together := flag.Int("together", 2, "programs at the same time")
	results := flag.String("results", "", "a file of results to update")
	commit := flag.String("commit", "", "the commit of the program")
	note := flag.String("note", "", "about the machine, for the page")
	flag.Parse()

	harness.Main(func(ctx context.Context) error {
		if *page {
			return writePages(".", filepath.Join("..", ".."))
		}
		rows, err := c.run(ctx, *chosen, strings.Fields(*names), *together)
		fmt.Print(tableOf(rows))
		if *results != "" {
			err = errors.Join(err, update(*results, rows, c.about(*commit, *note)))
		}
		return errors.Join(err, boundsOf(rows, c.slice))
	})
}

// run measures the answers, some programs at the same time.
func (c *campaign) run(
	ctx context.Context, chosen string, names []string, together int,
) (rows []Row, err error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}

	var tasks []task
	for _, part := range parts {
		if chosen != "" && !slices.Contains(strings.Split(chosen, ","), part.name) {
			continue
		}
		for _, t := range part.tasks(c) {
			t.Part = part.name
			name, _, _ := strings.Cut(t.Name, ",") // a program has several forms
			if len(names) == 0 || slices.Contains(names, name) {
				tasks = append(tasks, t)
			}
		}
	}

	rows = make([]Row, len(tasks))
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			rows[i] = c.measure(ctx, t)
			fmt.Fprint(os.Stderr, rows[i].line())
		})
	}

	all.Wait()
	return rows, ctx.Err()
}

// measure runs one task. A program that cannot be run has no answer, and says why.
func (c *campaign) measure(ctx context.Context, t task) Row {
	r := t.Row
	if ctx.Err() != nil {
		r.Outcome, r.Said = NotRun, "interrupted"
		return r
	}

	began := time.Now()
	if err := t.measure(ctx, c, &r); err != nil {
		r.Outcome, r.Said = NotRun, err.Error()
	}

	r.Seconds = time.Since(began).Round(time.Second / 10).Seconds()
	r.CPU = math.Round(10*r.CPU) / 10
	return r
}

// prepare makes the folder of the traces, and sets the time of a slice.
func (c *campaign) prepare() (err error) {
	if c.slice {
		c.duration = min(c.duration, time.Minute)
	}

	if c.output == "" {
		if c.output, err = os.MkdirTemp("", "allocscope-truth-"); err != nil {
			return err
		}
	}

	fmt.Fprintln(os.Stderr, "traces:", c.output)
	if c.newest != "" { // it has its own
		return os.MkdirAll(c.output, 0o700)
	}
	if c.pythons, err = pythonsOf(c.testdata); err != nil {
		return err
	}
	return os.MkdirAll(c.output, 0o700)
}

// few returns the first tasks of a slice, and else all.
func (c *campaign) few(tasks []task, n int) []task {
	if c.slice {
		return tasks[:min(n, len(tasks))]
	}
	return tasks
}
