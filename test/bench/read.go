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

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
)

// A reporter reads the files that a tool wrote to a folder. Some tools have commands for that, in
// the Debian folder.
type reporter struct {
	outer, inner string // the folder, as its path is outside and inside the Debian folder
	inside       func(ctx context.Context, argv ...string) *exec.Cmd
	pid          int // of the program
	program      program
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

	program := r.program.command[0]
	if r.program.python() {
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
	for _, stack := range r.stacks {
		slices.Reverse(stack)
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

// ranked returns the stacks whose frames have ";" between them, largest first.
func ranked(sizes map[string]float64) (r report) {
	stacks := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	})

	for _, stack := range stacks {
		if sizes[stack] > 0 {
			r.stacks = append(r.stacks, strings.Split(stack, ";"))
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

	result := report{off: rowsOff(s, r.pid)}
	for _, suspect := range s.Suspects {
		stack := slices.Concat(suspect.Callers, suspect.Path)
		result.stacks = append(result.stacks, stack)
		result.cache = result.cache || r.cache.in(stack) && !r.leak.in(stack)
	}

	for _, a := range s.Accumulating {
		if len(s.Suspects) == 0 {
			result.stacks = append(result.stacks, a.Stack)
		}
		accumulates := a.Trend == growth.TrendAccumulating
		result.cache = result.cache || r.cache.in(a.Stack) && accumulates
		if r.leak.in(a.Stack) && a.BytesPerMin != nil {
			result.rate += float64(*a.BytesPerMin)
		}
	}
	return result, nil
}

// rowsOff returns by how many bytes the rows of a process at the end differ from its RSS.
func rowsOff(s *summary.Summary, pid int) (off int64) {
	for _, r := range s.Residents {
		if r.Process == pid && r.EndBytes != nil {
			off -= *r.EndBytes
		}
	}
	for _, row := range s.Breakdown {
		if row.Process == pid && row.Kind != growth.KindSwapped {
			off += row.EndBytes
		}
	}
	return off
}
