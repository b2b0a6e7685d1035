// Command bench measures what tracing costs: each program natively, with allocscope and with other
// tools by turns, and whether the tool names the line that leaks. It prints a table in Markdown.
// `make bench` runs it. Its results are in results.json, of which docs/internals/performance.md is
// made.
package main

//go:generate go run . -page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

// A bench has the settings that all programs share.
type bench struct {
	binaries
	harness.Debian
	testdata string
	libc     string // the C library of the programs
	rounds   int
	seconds  int // of a stretch with allocscope
	minutes  int // in all
}

// part is the length of a native stretch, and of a part of one with allocscope, in seconds.
func (b *bench) part() int { return max(1, b.seconds/parts) }

func main() {
	var b bench
	flag.StringVar(&b.Root, "root", "", "the folder that testdata/peers/debian.sh prints")
	flag.StringVar(&b.testdata, "testdata", "testdata", "the folder of the programs")
	flag.StringVar(&b.allocscope, "allocscope", "bin/allocscope", "the program")
	flag.StringVar(&b.old, "old", "", "an older build of it, to compare with (default none)")
	flag.StringVar(&b.memleak, "memleak", "", "the path that testdata/fetch-memleak.sh prints")
	flag.IntVar(&b.rounds, "rounds", 5, "at most, for each program")
	flag.IntVar(&b.seconds, "seconds", 40, "length of a stretch with allocscope")
	flag.IntVar(&b.minutes, "minutes", 30, "in all, at most")
	programNames := flag.String("programs", "", "which, with spaces between them (default all)")
	toolNames := flag.String("tools", "",
		"which, with spaces between them (default all but the extra ones)")
	results := flag.String("results", "", "a file of results to update")
	page := flag.Bool("page", false, "only write the page, of the results")
	flag.Parse()

	harness.Main(func(ctx context.Context) error {
		if *page {
			return writePage()
		}
		rows, faults, err := b.run(ctx, *programNames, *toolNames)
		if err == nil && *results != "" {
			err = update(*results, rows)
		}
		return errors.Join(err, faults)
	})
}

// run measures the programs, prints the table and returns its rows. The bounds that they miss are
// in faults.
func (b *bench) run(
	ctx context.Context, programNames, toolNames string,
) (rows []Row, faults, err error) {
	chosen, err := harness.Choose(programs, programNames, func(p program) string { return p.name })
	if err != nil {
		return nil, nil, err
	}
	chosenTools, err := harness.Choose(tools, toolNames, func(t tool) string { return t.name })
	if err != nil {
		return nil, nil, err
	}
	if toolNames == "" {
		chosenTools = slices.DeleteFunc(slices.Clone(tools), func(t tool) bool { return t.extra })
	}

	began := time.Now()
	end := began.Add(time.Duration(b.minutes) * time.Minute)
	about := Run{
		Date: today(), Machine: thisMachine(),
		Note: fmt.Sprintf("%d s with allocscope, %d s with others", parts*b.part(), parts*peerPart),
	}
	if err := b.prepare(ctx); err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(b.Outer())
	commits := map[bool]string{false: commitOf(ctx, b.allocscope), true: commitOf(ctx, b.old)}
	about.Commit = commits[false]

	ctx, stop := context.WithDeadline(ctx, end)
	defer stop()
	for i, p := range chosen {
		c := &course{bench: b, program: p, cells: b.cells(p, chosenTools, toolNames != "")}
		until := time.Now().Add(time.Until(end) / time.Duration(len(chosen)-i))
		faults = errors.Join(faults, c.run(ctx, until))
		added := c.rowsOf(about, commits)
		one := table{rows: added}
		fmt.Fprint(os.Stderr, one.of(p, chosenTools))
		rows = append(rows, added...)
	}

	t := table{rows: rows}
	text := t.markdown(func(tool) bool { return true })
	fmt.Printf("%s\n%s%s in all\n", text, t.legend(), time.Since(began).Round(time.Second))
	return rows, faults, nil
}

// cells returns the tools that can trace a program. Tools of others trace some programs only,
// unless they are named.
func (b *bench) cells(p program, chosen []tool, named bool) (cells []*cell) {
	for _, t := range chosen {
		switch {
		case t.missing != "", t.old && b.old == "", t.python && !p.python(),
			p.ends && (!t.own || t.wrap == nil), !t.own && !named && !p.peers:
			continue
		}
		cells = append(cells, &cell{tool: t})
	}
	return cells
}

// run measures a program, and returns the bounds that it misses.
func (c *course) run(ctx context.Context, until time.Time) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: no time was left", c.program.name)
	}
	if err := c.logFile(); err != nil {
		return err
	}
	defer c.log.Close()
	if c.leak, c.cache, err = placesOf(c.program, c.Outer()); err != nil {
		return err
	}

	err = c.measure(ctx, until)
	return errors.Join(err, c.faults())
}

// prepare makes the folder of this run, with the programs.
func (b *bench) prepare(ctx context.Context) (err error) {
	found, _ := filepath.Glob(filepath.Join(b.Root, "usr/lib/*/libc.so.6"))
	if len(found) == 0 {
		return fmt.Errorf("no C library in the Debian folder %q", b.Root)
	}
	b.libc = found[0]

	peers := filepath.Join(b.testdata, "peers")
	if b.Enter, err = filepath.Abs(filepath.Join(peers, "inside.sh")); err != nil {
		return err
	}
	if err := b.Prepare(peers); err != nil {
		return err
	}

	for name, path := range map[string]*string{programFile: &b.allocscope, oldFile: &b.old} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err == nil {
			err = copyFile(*path, b.Outer(name), 0o755)
		}
		if err != nil {
			return err
		}
	}

	for _, compiled := range [][]string{
		{"loop", "loop.c"},
		{"storms", "storms.c", "-pthread"},
		{"plugin.so", "plugin.c", "-shared", "-fPIC"},
	} {
		output, source, flags := compiled[0], compiled[1], compiled[2:]
		if source != "loop.c" { // which is there
			if err := copyFile(filepath.Join(b.testdata, source), b.Outer(source), 0o644); err != nil {
				return err
			}
		}
		argv := b.Inside(append([]string{"gcc", "-O2", "-g", "-o", output, source}, flags...)...)
		text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("compile %s: %w: %s", source, err, text)
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, mode)
}

// commitOf returns the commit of a build of allocscope, which it prints itself.
func commitOf(ctx context.Context, path string) string {
	if path == "" {
		return ""
	}
	text, _ := exec.CommandContext(ctx, path, "version").Output()
	if m := commit.FindSubmatch(text); m != nil {
		return string(m[1]) + string(m[2])
	}
	return "a build that names no commit"
}

var commit = regexp.MustCompile(`\(commit ([0-9a-f]{8})[0-9a-f]*(-dirty)?`)

// faults returns the bounds that the program misses, and wrong results.
func (c *course) faults() (err error) {
	miss := func(t tool, format string, values ...any) {
		err = errors.Join(err, fmt.Errorf(c.program.name+", "+t.label+": "+format, values...))
	}
	for _, cell := range c.cells {
		row := cell.row(c.program, c.unrest())
		m := row.misses(c.program)
		if m.slowed {
			miss(cell.tool, "%.1f%% slower, noise %.1f%%", row.Slowed.Median*100, row.Noise*100)
		}
		if m.cores {
			miss(cell.tool, "%.3f of a core", row.Cores)
		}
		if m.leak {
			miss(cell.tool, "the leak: %s", finding(row))
		}
		for _, s := range cell.samples {
			if s.report.off != 0 {
				miss(cell.tool, "the rows and RSS differ by %d bytes", s.report.off)
			}
			if s.report.cache {
				miss(cell.tool, "the cache is called a leak")
			}
		}
	}
	return err
}
