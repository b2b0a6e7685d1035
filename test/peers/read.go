package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
)

// A reporter reads the files that a tool wrote to a folder. Some tools have commands for that, in
// the Debian folder.
type reporter struct {
	outer, inner string // the folder, as its path is outside and inside the Debian folder
	inside       func(ctx context.Context, argv ...string) *exec.Cmd
	workload     workload
	leak, cache  place
}

// output returns the standard output of a command that runs in the Debian folder.
func (r reporter) output(argv ...string) ([]byte, error) {
	ctx, stop := context.WithTimeout(context.Background(), exitTimeout)
	defer stop()

	c := r.inside(ctx, argv...)
	harness.OwnGroup(c)
	var errors bytes.Buffer
	c.Stderr = &errors
	text, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, strings.TrimSpace(errors.String()))
	}
	return text, nil
}

// find returns the last file that matches a pattern, as its path is inside.
func (r reporter) find(pattern string) (string, error) {
	files, _ := filepath.Glob(filepath.Join(r.outer, pattern))
	if len(files) == 0 {
		return "", fmt.Errorf("the tool has written no file %s", pattern)
	}
	return filepath.Join(r.inner, filepath.Base(files[len(files)-1])), nil
}

func readMemray(r reporter) (report, error) {
	text, err := r.output("python3", "leaks.py", filepath.Join(r.inner, memrayFile))
	return collapsed(text), err
}

func readHeaptrack(r reporter) (report, error) {
	file, err := r.find("heaptrack*")
	if err != nil {
		return report{}, err
	}

	_, err = r.output("heaptrack_print", "-f", file, "-p", "0", "-a", "0", "-T", "0",
		"-F", filepath.Join(r.inner, "stacks"), "--flamegraph-cost-type", "leaked")
	if err != nil {
		return report{}, err
	}

	text, err := os.ReadFile(filepath.Join(r.outer, "stacks"))
	return collapsed(text), err
}

func readJemalloc(r reporter) (report, error) {
	file, err := r.find("jemalloc*.heap")
	if err != nil {
		return report{}, err
	}

	program := r.workload.command[0]
	if r.workload.python() {
		program = "/usr/bin/" + program
	}
	text, err := r.output("jeprof", "--collapsed", "--show_bytes", program, file)
	return collapsed(text), err
}

// collapsed reads folded stacks: each line has the frames, root first, with ";" between them, then
// a space and the bytes.
func collapsed(text []byte) report {
	sizes := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if size, err := strconv.ParseFloat(line[at+1:], 64); err == nil && at > 0 {
			sizes[line[:at]] += size
		}
	}

	r := ranked(sizes)
	for _, e := range r.entries {
		slices.Reverse(e.frames)
	}
	return r
}

var (
	// outstanding is the beginning of an entry of memleak, and stackFrame a frame in it.
	outstanding = regexp.MustCompile(`^(\d+) bytes in \d+ allocations from stack`)
	stackFrame  = regexp.MustCompile(`^\s*\d+ \[<[0-9a-f]+>\] (.*)$`)
)

func readMemleak(r reporter) (report, error) {
	file, err := os.Open(filepath.Join(r.outer, outputFile))
	if err != nil {
		return report{}, err
	}
	defer file.Close()

	sizes := make(map[string]float64)
	var frames []string
	size := 0.0
	add := func() {
		if len(frames) > 0 {
			sizes[strings.Join(frames, ";")] += size
		}
		frames = nil
	}

	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if begins := outstanding.FindStringSubmatch(lines.Text()); begins != nil {
			add()
			size, _ = strconv.ParseFloat(begins[1], 64)
		} else if frame := stackFrame.FindStringSubmatch(lines.Text()); frame != nil {
			frames = append(frames, frame[1])
		}
	}
	add()

	return ranked(sizes), lines.Err()
}

// ranked returns the entries of stacks whose frames have ";" between them, largest first.
func ranked(sizes map[string]float64) (r report) {
	sum := 0.0
	for _, size := range sizes {
		sum += size
	}

	stacks := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})

	for _, stack := range stacks {
		if size := sizes[stack]; size > 0 {
			e := entry{frames: strings.Split(stack, ";"), share: size / sum}
			r.entries = append(r.entries, e)
		}
	}
	return r
}

// readAllocscope returns the suspects of summary.json, or the stacks that accumulate if there is no
// suspect.
func readAllocscope(r reporter) (report, error) {
	s, err := harness.Summary(filepath.Join(r.outer, traceFolder))
	if err != nil {
		return report{}, err
	}

	result := report{rates: true, verdict: string(s.Class)}
	for _, suspect := range s.Suspects {
		slices.Reverse(suspect.Path) // leaf first
		e := entry{
			frames: append(suspect.Path, suspect.Callers...), share: orZero(suspect.Share),
			component: suspect.Component,
		}
		result.entries = append(result.entries, e)
		result.cache = result.cache || r.cache.in(e.frames) && !r.leak.in(e.frames)
	}

	for _, a := range s.Accumulating {
		if len(s.Suspects) == 0 {
			result.entries = append(result.entries, entry{frames: a.Stack, share: a.Share})
		}
		accumulates := a.Trend == growth.TrendAccumulating
		result.cache = result.cache || r.cache.in(a.Stack) && accumulates
		if r.leak.in(a.Stack) {
			result.rate += float64(orZero(a.BytesPerMin))
			result.low += float64(orZero(a.RateLow))
			result.top += float64(orZero(a.RateHigh))
		}
	}
	return result, nil
}

// orZero returns the number, or 0 if it is unknown.
func orZero[T int64 | float64](number *T) T {
	if number == nil {
		return 0
	}
	return *number
}
