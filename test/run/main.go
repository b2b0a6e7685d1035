// Command run checks `allocscope run` on real ways to start a job: PyTorch, workers, ranks, a build.
// Each runs without allocscope, which is the oracle of its output and exit status, and below it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/test/harness"
)

func main() {
	program := flag.String("allocscope", "bin/allocscope", "program to test")
	names := flag.String("ways", "", "names of ways; empty: all")
	work := flag.String("work", "", "folder to work in")
	flag.Parse()

	chosen, err := harness.Choose(ways, *names, func(w way) string { return w.name })
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}

	failed := false
	for _, w := range chosen {
		began := time.Now()
		errs := w.check(*program, filepath.Join(*work, w.name))
		fmt.Printf("%-18s %-6s %.1f s\n", w.name, map[bool]string{true: "ok", false: "FAILED"}[len(errs) == 0],
			time.Since(began).Seconds())
		for _, err := range errs {
			fmt.Printf("    %v\n", err)
			failed = true
		}
	}

	if failed {
		os.Exit(1)
	}
}

// A result is the output of a command, and how it ended.
type result struct {
	out    string
	status int
}

// check runs a way twice, and returns the differences.
func (w way) check(program, dir string) (errs []error) {
	traced := filepath.Join(dir, "result")
	want, _ := w.run(filepath.Join(dir, "plain"))
	got, said := w.run(filepath.Join(dir, "below"), program, "run", "--output", traced, "--")

	s, err := harness.Summary(traced)
	if err != nil {
		return []error{fmt.Errorf("read the summary: %w; it says:\n%s", err, said)}
	}
	if got != want {
		errs = append(errs, fmt.Errorf("prints %q with status %d, without allocscope %q with %d",
			got.out, got.status, want.out, want.status))
	}
	if s.Ended != summary.EndedExit || !s.Launched {
		errs = append(errs, fmt.Errorf("the trace ended by %q, launched: %t", s.Ended, s.Launched))
	}

	pids := make(map[int]bool)
	for _, source := range s.Sources {
		if source.Name == "heap" && source.State == summary.SourceAttached {
			pids[source.PID] = true
		}
	}
	if w.unseen && !strings.Contains(said, "does not see its allocations") {
		errs = append(errs, errors.New("it does not say that allocations are not seen"))
	}
	if len(pids) < w.traced {
		errs = append(errs, fmt.Errorf("%d processes were traced, not %d", len(pids), w.traced))
	}
	if w.kept != 0 {
		if err := w.checkKept(traced); err != nil {
			errs = append(errs, err)
		}
	}
	if strings.Contains(said, " stays: ") {
		errs = append(errs, fmt.Errorf("the shim is left: %s", said))
	}
	return errs
}

// run runs the command in a new folder, below the wrapper that precedes it. It also returns the
// wrapper's output.
func (w way) run(dir string, before ...string) (result, string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return result{err.Error(), -1}, ""
	}
	arguments := append(before, "sh", "-c", w.command)
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Dir = dir
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	_ = command.Run() // the status says it
	return result{out.String(), command.ProcessState.ExitCode()}, said.String()
}

// checkKept compares the bytes of function keep, in the snapshot that has most, with the truth. Objects
// of 1 MiB are sampled with a probability of 86% at least, so that 64 of them are within 25% of their
// sum.
func (w way) checkKept(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.pb.gz"))
	if err != nil {
		return err
	}
	var most int64
	for _, path := range files {
		bytes, err := bytesOf(path, "keep")
		if err != nil {
			return err
		}
		most = max(most, bytes)
	}
	if most < w.kept*3/4 || most > w.kept*5/4 {
		return fmt.Errorf("function keep holds %d bytes, not %d", most, w.kept)
	}
	return nil
}

// bytesOf returns the bytes below a function in a profile.
func bytesOf(path, function string) (sum int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	p, err := profile.Parse(file)
	if err != nil {
		return 0, err
	}

	index := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool {
		return t.Type == "inuse_space"
	})
	for _, s := range p.Sample {
		if hasFunction(s, function) {
			sum += s.Value[index]
		}
	}
	return sum, nil
}

func hasFunction(s *profile.Sample, name string) bool {
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function.Name == name {
				return true
			}
		}
	}
	return false
}
