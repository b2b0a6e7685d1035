package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/test/harness"
)

// A Spread has the median of some numbers and their quartiles.
type Spread struct {
	Median float64 `json:"median"`
	// Absent: there is one number, or they are not known.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
}

// spreadOf returns nil of nothing.
func spreadOf(numbers []float64) *Spread {
	switch len(numbers) {
	case 0:
		return nil
	case 1:
		return &Spread{Median: rounded(numbers[0])}
	}
	of := func(q float64) float64 { return rounded(harness.Quantile(numbers, q)) }
	return &Spread{Median: of(0.5), Low: of(0.25), High: of(0.75)}
}

// rounded keeps four digits.
func rounded(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	return y
}

// A Run is how and where rows were measured.
type Run struct {
	Commit  string `json:"commit"` // of allocscope
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Note    string `json:"note,omitempty"`
}

// A Row is a program with a tool; with the tool native, the program alone.
type Row struct {
	Program string `json:"program"`
	Tool    string `json:"tool"`
	Run
	Samples  int     `json:"samples,omitempty"`
	StretchS float64 `json:"stretch_s,omitempty"` // of a stretch with the tool

	// StepS is of a native step: seconds of CPU time, or by the clock of a program that only ends.
	StepS *Spread `json:"step_s,omitempty"`
	// CPU and Clock are of a step, times native. In the row native they are the noise: a stretch
	// compared with its neighbours.
	CPU   *Spread `json:"cpu,omitempty"`
	Clock *Spread `json:"clock,omitempty"`
	// Slowed is the CPU time added, as a share of the elapsed time.
	Slowed *Spread `json:"slowed,omitempty"`
	// Noise is by how much the CPU time of native steps differs, as the same share: the distance of
	// the quartiles.
	Noise float64 `json:"noise,omitempty"`
	// Cores and ToolBytes (PSS) are of the tool, MapBytes of its BPF maps, AddedBytes of the program:
	// the RAM that it has because of the tool.
	Cores      float64 `json:"cores,omitempty"`
	ToolBytes  int64   `json:"tool_bytes,omitempty"`
	MapBytes   int64   `json:"map_bytes,omitempty"`
	AddedBytes int64   `json:"added_bytes,omitempty"`
	// Ranks are the positions of the leak in the reports; 0: it is in none.
	Ranks []int `json:"ranks,omitempty"`
	// Rate is the reported rate of the leak as a multiple of the true one.
	Rate *Spread `json:"rate,omitempty"`
	// Why there are no numbers, or no report.
	Why string `json:"why,omitempty"`
}

// A Campaign is a table of other measurements.
type Campaign struct {
	Title string `json:"title"`
	By    string `json:"by,omitempty"` // the command that measures it; absent: by hand
	Run
	Text    string     `json:"text,omitempty"` // before the table
	Columns []string   `json:"columns,omitempty"`
	Rows    [][]string `json:"rows,omitempty"`
	After   []string   `json:"after,omitempty"` // paragraphs behind the table
}

// Results are the content of results.json.
type Results struct {
	Rows      []Row      `json:"rows"`
	Campaigns []Campaign `json:"campaigns"`
}

func readResults(path string) (results Results, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return results, err
	}
	return results, json.Unmarshal(text, &results)
}

// update writes rows into a file of results, in place of older rows of the same cells.
func update(path string, rows []Row) error {
	results, err := readResults(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	for _, r := range rows {
		at := slices.IndexFunc(results.Rows, func(other Row) bool {
			return other.Program == r.Program && other.Tool == r.Tool
		})
		if at < 0 {
			at = len(results.Rows)
			results.Rows = append(results.Rows, r)
		}
		results.Rows[at] = r
	}
	slices.SortStableFunc(results.Rows, func(a, b Row) int { return a.order() - b.order() })

	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// order is the place of a row: by its program, then by its tool.
func (r Row) order() int {
	program := slices.IndexFunc(programs, func(p program) bool { return p.name == r.Program })
	tool := slices.IndexFunc(tools, func(t tool) bool { return t.name == r.Tool })
	return program*(len(tools)+1) + tool
}

// rowsOf returns the rows of a program: native, and each tool that was measured or has failed.
func (c *course) rowsOf(about Run, commits map[bool]string) (rows []Row) {
	var cpu, clock []float64
	for _, natives := range c.natives {
		cpu = append(cpu, noise(natives, cpuOfStep)...)
		clock = append(clock, noise(natives, wallOfStep)...)
	}

	step := cpuOfStep
	if c.program.ends {
		step = wallOfStep
	}
	if all := slices.Concat(c.natives...); len(all) > 0 {
		rows = append(rows, Row{
			Program: c.program.name, Tool: native, Run: about, Samples: len(all),
			StepS: spreadOf(each(all, step)), CPU: spreadOf(cpu), Clock: spreadOf(clock),
		})
	}

	for _, cell := range c.cells {
		if row := cell.row(c.program, c.unrest()); row.Samples > 0 || row.Why != "" {
			row.Run = about
			row.Commit = commits[cell.tool.old]
			rows = append(rows, row)
		}
	}
	return rows
}

// unrest is the noise of a row.
func (c *course) unrest() float64 {
	all := slices.Concat(c.natives...)
	if len(all) == 0 {
		return 0
	}
	cpu := each(all, cpuOfStep)
	width := harness.Quantile(cpu, 0.75) - harness.Quantile(cpu, 0.25)
	return rounded(width / harness.Quantile(each(all, wallOfStep), 0.5))
}

func each[T, N any](all []T, number func(T) N) (numbers []N) {
	for _, one := range all {
		numbers = append(numbers, number(one))
	}
	return numbers
}

// row sums up the samples of a cell.
func (c *cell) row(p program, unrest float64) Row {
	row := Row{Program: p.name, Tool: c.tool.name, Samples: len(c.samples)}
	if c.err != nil {
		row.Why = c.err.Error()
	}
	if len(c.samples) == 0 {
		return row
	}

	ratios := func(of func(stretch) float64) *Spread {
		all := each(c.samples, func(s sample) []float64 { return s.ratios(of) })
		return spreadOf(slices.Concat(all...))
	}
	row.CPU, row.Clock = ratios(cpuOfStep), ratios(wallOfStep)
	if p.ends {
		seconds := func(s sample) float64 { return wallOfStep(s.stretch) }
		row.StepS = spreadOf(each(c.samples, seconds))
		return row
	}

	median := func(number func(sample) float64) float64 {
		return harness.Quantile(each(c.samples, number), 0.5)
	}
	row.Slowed, row.Noise = spreadOf(each(c.samples, sample.slowed)), unrest
	row.Cores = rounded(median(func(s sample) float64 { return s.load.Cores }))
	row.AddedBytes = int64(median(sample.added))
	var rates []float64
	for _, s := range c.samples {
		row.StretchS = max(row.StretchS, math.Round(s.seconds))
		row.ToolBytes = max(row.ToolBytes, s.load.PSS)
		row.MapBytes = max(row.MapBytes, s.load.Kernel)
		if s.unread != nil {
			row.Why = "no report: " + s.unread.Error()
			continue
		}
		row.Ranks = append(row.Ranks, s.report.rank)
		if times, ok := s.rate(); ok {
			rates = append(rates, times)
		}
	}
	row.Rate = spreadOf(rates)
	return row
}

// thisMachine describes the machine, and its load before the run.
func thisMachine() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // the kernel's name stays empty
	model := "CPU of " + runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo")
	if m := cpuModel.FindSubmatch(text); m != nil {
		model = string(m[1])
	}
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%d cores (%s), Linux %s, load %s before", runtime.NumCPU(), model,
		unix.ByteSliceToString(name.Release[:]), first)
}

var cpuModel = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func today() string { return time.Now().UTC().Format(time.DateOnly) }
