// Command dist installs each file of dist/ into an empty root, as its users would, runs allocscope
// there, traces programs whose leak is known, removes it, and looks for leftovers. The script `run`
// beside it prepares the roots, and a mount namespace for all this.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/test/harness"
)

func main() {
	var s settings
	flag.StringVar(&s.dist, "dist", "", "folder of the files")
	flag.StringVar(&s.roots, "roots", "", "folder of the roots")
	flag.StringVar(&s.programs, "programs", "", "folder of the programs that leak")
	flag.StringVar(&s.work, "work", "", "folder for copies of the roots")
	flag.StringVar(&s.logs, "logs", "", "folder for the logs")
	flag.Parse()

	harness.Main(func(ctx context.Context) error { return runAll(ctx, s, flag.Args()) })
}

// settings are the same for all cases. Folders are absolute.
type settings struct{ dist, roots, programs, work, logs string }

// runAll runs the cases whose root or form is named, or all, and prints a line for each.
func runAll(ctx context.Context, s settings, names []string) error {
	cases, err := plan(s.dist)
	if err != nil {
		return err
	}

	fmt.Printf("%-14s %-9s %8s %8s  %s\n", "ROOT", "FORM", "INSTALL", "VERDICT", "RESULT")
	failed := 0
	for _, c := range cases {
		if !c.isNamed(names) {
			continue
		}
		r := c.check(ctx, s)
		if r.err != nil {
			failed++
		}
		fmt.Println(r.line(c))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d files do not work", failed)
	}
	return nil
}

// isNamed reports whether one of the names names the root or the form.
func (c testCase) isNamed(names []string) bool {
	return len(names) == 0 || slices.Contains(names, c.root) || slices.Contains(names, c.form)
}

// A result is the result of a case.
type result struct {
	install time.Duration // until allocscope could be called
	verdict time.Duration // until the first verdict, from the beginning of install
	traces  []string      // the result of each trace
	log     string
	err     error
}

// line is the result for people.
func (r result) line(c testCase) string {
	text := "ok    " + strings.Join(r.traces, "; ")
	if r.err != nil {
		text = fmt.Sprintf("FAIL  %v (see %s)", r.err, r.log)
	}
	return fmt.Sprintf("%-14s %-9s %8s %8s  %s", c.root, c.form, seconds(r.install),
		seconds(r.verdict), text)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// logFile makes the log of a case.
func (s settings) logFile(c testCase) (*os.File, error) {
	return os.Create(filepath.Join(s.logs, c.root+"-"+c.form+".log"))
}
