// Package harness has the parts that programs share which check allocscope on real jobs.
package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
)

// Main runs a program until it ends or a signal does. An error is printed, and the status is 1.
func Main(run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Choose returns the items that are named, with spaces between the names; all if there is none.
func Choose[T any](all []T, names string, nameOf func(T) string) (chosen []T, err error) {
	wanted := strings.Fields(names)
	if len(wanted) == 0 {
		return all, nil
	}

	for _, name := range wanted {
		i := slices.IndexFunc(all, func(one T) bool { return nameOf(one) == name })
		if i < 0 {
			return nil, fmt.Errorf("plan.go has no %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// OwnGroup makes the end of the context kill all processes of a command.
func OwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 10 * time.Second
}

// Summary reads the summary of a trace, of any version.
func Summary(trace string) (*summary.Summary, error) {
	text, err := os.ReadFile(filepath.Join(trace, folder.SummaryFile))
	if err != nil {
		return nil, err
	}

	var s summary.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("read the summary in %s: %w", trace, err)
	}
	return &s, nil
}

// Line returns the place of the line of a file that is marked, such as train.py:25.
func Line(path string, isMarked func(line string) bool) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}

	at := slices.IndexFunc(strings.Split(string(text), "\n"), isMarked)
	if at < 0 {
		return "", fmt.Errorf("%s has no line that is marked", path)
	}
	return fmt.Sprintf("%s:%d", filepath.Base(path), at+1), nil
}

// Quantile interpolates between the two numbers next to q; NaN if there are no numbers.
func Quantile(numbers []float64, q float64) float64 {
	if len(numbers) == 0 {
		return math.NaN()
	}

	sorted := slices.Sorted(slices.Values(numbers))
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (sorted[above]-sorted[below])*(at-float64(below))
}

// A Debian is the folder that testdata/peers/debian.sh prints, and a folder of this run in it.
type Debian struct {
	Root, Enter string // the folder; testdata/peers/inside.sh
	work        string // as its path is inside
}

// Prepare makes the folder of this run, with copies of the programs of a folder.
func (d *Debian) Prepare(programs string) error {
	work, err := os.MkdirTemp(filepath.Join(d.Root, "tmp"), "allocscope-")
	if err != nil {
		return err
	}

	d.work = "/tmp/" + filepath.Base(work)
	return os.CopyFS(work, os.DirFS(programs))
}

// Inner returns a path in the folder of this run, as it is inside the Debian folder.
func (d *Debian) Inner(names ...string) string {
	return filepath.Join(append([]string{d.work}, names...)...)
}

// Outer returns the same path as Inner, as it is outside the Debian folder.
func (d *Debian) Outer(names ...string) string { return filepath.Join(d.Root, d.Inner(names...)) }

// Inside returns the command that runs another in the folder of this run. It may begin with
// variables.
func (d *Debian) Inside(command ...string) []string {
	return append([]string{
		d.Enter, d.Root, "env", "--chdir", d.work, "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
	}, command...)
}
