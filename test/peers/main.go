// Command peers compares allocscope with other tools on real trainers: the cost of each tool, and
// whether it names the line that leaks. It prints a table in Markdown. See the script `run` beside
// it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/allocscope/allocscope/test/harness"
)

// A bench has the settings that all cells share.
type bench struct {
	tools
	harness.Debian
	testdata       string // testdata/peers
	libc           string // the C library of the workloads
	rounds         int
	seconds, last  int     // of a stretch, and of the stretch for the report
	long, longLast int     // the same, for allocscope with its defaults
	bound          float64 // of the time of a step, times native; 0: none
}

func main() {
	var b bench
	flag.StringVar(&b.Root, "root", "", "the folder that testdata/peers/debian.sh prints")
	flag.StringVar(&b.testdata, "testdata", "testdata/peers", "the workloads")
	flag.StringVar(&b.allocscope, "allocscope", "bin/allocscope", "the program")
	flag.StringVar(&b.memleak, "memleak", "", "the path that testdata/fetch-memleak.sh prints")
	flag.IntVar(&b.rounds, "rounds", 5, "alternations of native and traced stretches")
	flag.IntVar(&b.seconds, "seconds", 6, "length of a stretch")
	flag.IntVar(&b.last, "last", 30, "seconds of the stretch for the report")
	flag.IntVar(&b.long, "long", 60, "seconds of a traced stretch of allocscope with its defaults")
	flag.IntVar(&b.longLast, "long-last", 300, "seconds of the stretch for its report")
	flag.Float64Var(&b.bound, "bound", 0,
		"fail where a step takes more than this times the native time, beyond the noise")
	names := flag.String("workloads", "", "which, with spaces between them (default all)")
	wayNames := flag.String("ways", "", "which, with spaces between them (default all)")
	flag.Parse()

	harness.Main(func(ctx context.Context) error { return b.run(ctx, *names, *wayNames) })
}

func (b *bench) run(ctx context.Context, workloadNames, wayNames string) error {
	chosen, err := harness.Choose(workloads, workloadNames, func(w workload) string { return w.name })
	if err != nil {
		return err
	}

	chosenWays, err := harness.Choose(ways, wayNames, func(w way) string { return w.name })
	if err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer os.RemoveAll(b.Outer())

	results := make([][]result, len(chosen))
	for i, w := range chosen {
		for _, y := range chosenWays {
			results[i] = append(results[i], b.measure(ctx, w, y))
		}
	}

	fmt.Print(b.tables(chosen, results))
	errs := []error{ctx.Err()}
	for _, r := range slices.Concat(results...) {
		errs = append(errs, r.exceeds(b.bound))
	}
	return errors.Join(errs...)
}

// prepare makes the folder of this run, with the workloads.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.allocscope, err = filepath.Abs(b.allocscope); err != nil {
		return err
	}

	found, _ := filepath.Glob(filepath.Join(b.Root, "usr/lib/*/libc.so.6"))
	if len(found) == 0 {
		return fmt.Errorf("no C library in the Debian folder %q", b.Root)
	}
	b.libc = found[0]

	b.Enter = filepath.Join(b.testdata, "inside.sh")
	if err := b.Prepare(b.testdata); err != nil {
		return err
	}

	program, err := os.ReadFile(b.allocscope)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.Outer(programFile), program, 0o755); err != nil {
		return err
	}

	argv := b.Inside("gcc", "-O2", "-g", "-o", "loop", "loop.c")
	if text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("compile loop.c: %w: %s", err, text)
	}
	return nil
}

// measure returns one row of the table.
func (b *bench) measure(ctx context.Context, w workload, y way) result {
	r := result{workload: w, way: y}
	leak, cache, err := placesOf(w, b.testdata)
	if r.leak = leak; err != nil {
		r.err = err
		return r
	}
	if y.python && !w.python() {
		r.err = errors.New("only for Python programs")
		return r
	}

	c := cell{bench: b, workload: w, way: y, name: w.name + "-" + y.name, result: &r}
	fmt.Fprintf(os.Stderr, "%s: %s\n", w.name, y.name)
	if r.err = c.measure(ctx); r.err == nil {
		r.report, r.unread = y.read(reporter{
			outer: b.Outer(c.name), inner: b.Inner(c.name),
			workload: w, leak: leak, cache: cache,
			inside: func(ctx context.Context, argv ...string) *exec.Cmd {
				argv = b.Inside(argv...)
				return exec.CommandContext(ctx, argv[0], argv[1:]...)
			},
		})
	}

	os.RemoveAll(b.Outer(c.name)) // recordings are large
	fmt.Fprint(os.Stderr, r.row(), "\n")
	return r
}
