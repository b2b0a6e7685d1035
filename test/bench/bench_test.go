package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/test/harness"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const testdata = "../../testdata"

func programNamed(t *testing.T, name string) program {
	t.Helper()
	chosen, err := harness.Choose(programs, name, func(p program) string { return p.name })
	tracertest.NoError(t, err)
	return chosen[0]
}

// folderOf is where the source of a program is.
func folderOf(p program) string {
	if p.source == "storms.c" {
		return testdata
	}
	return filepath.Join(testdata, "peers")
}

func placesNamed(t *testing.T, name string) (p program, leak, cache place) {
	t.Helper()
	p = programNamed(t, name)
	leak, cache, err := placesOf(p, folderOf(p))
	tracertest.NoError(t, err)
	return p, leak, cache
}

const maxPageLines = 150

func TestPage(t *testing.T) {
	results := tracertest.Must(readResults(resultsFile))(t)
	page := tracertest.Must(os.ReadFile(filepath.Join("..", "..", pageFile)))(t)
	if string(page) != pageOf(results) {
		t.Errorf("%s does not match %s: run go generate ./test/bench", pageFile, resultsFile)
	}
	if lines := strings.Count(string(page), "\n"); lines > maxPageLines {
		t.Errorf("%s has %d lines, want at most %d", pageFile, lines, maxPageLines)
	}

	for _, r := range results.Rows {
		isTool := r.Tool == native ||
			slices.ContainsFunc(tools, func(t tool) bool { return t.name == r.Tool })
		isProgram := slices.ContainsFunc(programs, func(p program) bool { return p.name == r.Program })
		if !isTool || !isProgram {
			t.Errorf("a row is of %q with %q, which plan.go has not", r.Program, r.Tool)
		}
		if r.Commit == "" || r.Date == "" || r.Machine == "" {
			t.Errorf("%s with %s does not say commit, date and machine", r.Program, r.Tool)
		}
	}
	for _, c := range results.Campaigns {
		if c.Commit == "" || c.Date == "" || c.Machine == "" {
			t.Errorf("%s does not say commit, date and machine", c.Title)
		}
	}
}

func TestPlacesOf(t *testing.T) {
	for _, p := range programs {
		if p.source == "" {
			continue
		}
		_, leak, cache := placesNamed(t, p.name)
		text := tracertest.Must(os.ReadFile(filepath.Join(folderOf(p), p.source)))(t)

		for _, one := range []place{leak, cache} {
			if strings.Count(string(text), one.function) < 2 {
				t.Errorf("%s has no function %q that is called", p.source, one.function)
			}
		}
		if leak.line == cache.line {
			t.Errorf("%s: the leak and the cache are both at %s", p.source, leak.line)
		}
	}
}

// TestTools checks that each tool can be had or says why not, and traces in one way.
func TestTools(t *testing.T) {
	for _, tool := range tools {
		if tool.missing != "" {
			continue
		}
		if (tool.attach == nil) == (tool.wrap == nil) || tool.read == nil {
			t.Errorf("%s: it must attach or start, and have a report", tool.name)
		}
		if (tool.attach == nil) != (tool.ready == "") {
			t.Errorf("%s: a tool that attaches says when it has", tool.name)
		}
	}
}

// sampleOf has parts of one step, with so many seconds of CPU time each, between native stretches
// of 1 and 3 s in 4 s by the clock.
func sampleOf(cpu ...float64) (s sample) {
	s.before = stretch{steps: 1, cpu: 1, seconds: 4}
	s.after = stretch{steps: 1, cpu: 3, seconds: 4}
	for _, seconds := range cpu {
		s.add(stretch{steps: 1, cpu: seconds, seconds: 4, leaked: 100})
	}
	return s
}

func TestSample(t *testing.T) {
	s := sampleOf(4, 1)
	if got := s.ratios(cpuOfStep); !slices.Equal(got, []float64{2, 0.5}) {
		t.Errorf("ratios: %v, want 2 and 0.5", got)
	}
	if got := s.slowed(); got != 0.125 { // half a second in 4
		t.Errorf("slowed: %v, want 0.125", got)
	}

	s.report.rate = 60 * 50 // bytes a minute
	if got, ok := s.rate(); got != 2 || !ok {
		t.Errorf("rate: %v times the true one, want 2", got)
	}
	s.unread = errors.New("no file")
	if _, ok := s.rate(); ok {
		t.Error("a report that was not read has a rate")
	}

	natives := []stretch{{steps: 1, cpu: 1}, {steps: 1, cpu: 3}, {steps: 1, cpu: 5}}
	if got := noise(natives, cpuOfStep); !slices.Equal(got, []float64{1}) {
		t.Errorf("noise: %v, want 1", got)
	}
	if got := spreadOf([]float64{4, 1, 3, 2, 5}); *got != (Spread{Low: 2, Median: 3, High: 4}) {
		t.Errorf("spread: %v, want 2, 3 and 4", got)
	}
	if got := spreadOf(nil); got != nil {
		t.Errorf("the spread of nothing: %v", got)
	}
}

func TestRows(t *testing.T) {
	first, none := sampleOf(3, 3), sampleOf(3, 3)
	first.report = report{rank: 1, rate: 60 * 25}
	c := course{
		bench: &bench{}, program: programNamed(t, "map"),
		natives: [][]stretch{{first.before, first.before, first.before}},
		cells: []*cell{
			{tool: tools[0], samples: []sample{first, none}},
			{tool: tools[1]}, // it was interrupted
			{tool: tools[4], err: errors.New("it ended")},
		},
	}

	rows := c.rowsOf(Run{Date: "today"}, map[bool]string{false: "new"})
	if len(rows) != 3 || rows[0].Tool != native || rows[1].Tool != tools[0].name ||
		rows[2].Why != "it ended" {
		t.Fatalf("rows of native, %s and %s: %+v", tools[0].name, tools[4].name, rows)
	}
	got := rows[1]
	if got.Samples != 2 || got.CPU.Median != 1.5 || got.Rate.Median != 1 || got.Commit != "new" ||
		!slices.Equal(got.Ranks, []int{1, 0}) {
		t.Errorf("the row is %+v, with a CPU time of %v and a rate of %v", got, got.CPU, got.Rate)
	}

	text := c.faults().Error()
	for _, want := range []string{"25.0% slower", "first in 1 of 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("the faults have no %q: %s", want, text)
		}
	}
}

func TestMisses(t *testing.T) {
	p := program{bounds: bounds{slowed: 0.03, cores: 0.02, rateError: 0.2}}
	good := Row{
		Tool: "attached", Slowed: &Spread{Median: 0.04}, Noise: 0.02, Cores: 0.02,
		Ranks: []int{1}, Rate: &Spread{Median: 1.2},
	}
	for name, c := range map[string]struct {
		change func(*Row)
		want   missed
	}{
		"good":        {func(*Row) {}, missed{}},
		"no noise":    {func(r *Row) { r.Noise = 0 }, missed{slowed: true}},
		"cores":       {func(r *Row) { r.Cores = 0.021 }, missed{cores: true}},
		"rate":        {func(r *Row) { r.Rate.Median = 0.79 }, missed{leak: true}},
		"no rate":     {func(r *Row) { r.Rate = nil }, missed{leak: true}},
		"second once": {func(r *Row) { r.Ranks = []int{1, 2} }, missed{leak: true}},
		"old":         {func(r *Row) { r.Tool, r.Cores = "attached-old", 1 }, missed{}},
	} {
		row := good
		row.Rate = &Spread{Median: good.Rate.Median}
		c.change(&row)
		if got := row.misses(p); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	one, other := Run{Commit: "one"}, Run{Commit: "other"}
	table := table{rows: []Row{
		{Program: "map", Tool: native, Run: one, StepS: &Spread{Median: 1e-5}},
		{
			Program: "map", Tool: "attached", Run: one, CPU: &Spread{Median: 1.5, Low: 1, High: 2},
			Slowed: &Spread{Median: 0.5}, Ranks: []int{1}, Rate: &Spread{Median: 1},
		},
		{Program: "map", Tool: "memleak", Run: other, Why: "a | b"},
		{Program: "true", Tool: "attached", Run: other, StepS: &Spread{Median: 2}},
	}}
	want := `| | | native | attached | memleak |
|---|---|---|---|---|
| ` + "`true`" + ` | CPU, clock |  | 2.00 s a |  |
| ` + "`map`, 10 µs" + ` | CPU, clock |  | 1.500 (1.000-2.000) b | none: a \| b a |
|  | cost; leak |  | **50.0%**; first, 1.000 |  |
`
	if got := table.markdown(func(tool) bool { return true }); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	legend := table.legend()
	for _, want := range []string{"- a: other\n- b: one\n", "- systing is not measured: it is "} {
		if !strings.Contains(legend, want) {
			t.Errorf("the legend %q has no %q", legend, want)
		}
	}
}

func TestUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), resultsFile)
	for _, commit := range []string{"one", "two"} {
		rows := []Row{
			{Program: "loop", Tool: "attached", Run: Run{Commit: commit}},
			{Program: "true", Tool: commit, Run: Run{Commit: commit}},
		}
		tracertest.NoError(t, update(path, rows))
	}

	results := tracertest.Must(readResults(path))(t)
	var got []string
	for _, r := range results.Rows {
		got = append(got, r.Program+" "+r.Tool+" "+r.Commit)
	}
	want := []string{"true one one", "true two two", "loop attached two"}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
}

func TestCells(t *testing.T) {
	for _, c := range []struct {
		program, old string
		named        bool
		want         string
	}{
		{program: "true", want: "launched"},
		{program: "map", old: "x", want: "attached launched attached-old launched-old"},
		{program: "loop", want: "attached launched memleak heaptrack full kernel jemalloc"},
		{program: "recompile", named: true, want: "attached launched memleak heaptrack memray " +
			"memray-attach full kernel memray-native jemalloc"},
	} {
		b := bench{binaries: binaries{old: c.old}}
		chosen := tools
		if c.program == "map" {
			chosen = tools[:6]
		}
		var got []string
		for _, cell := range b.cells(programNamed(t, c.program), chosen, c.named) {
			got = append(got, cell.tool.name)
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.program, text, c.want)
		}
	}
}

func TestCollapsed(t *testing.T) {
	_, leak, cache := placesNamed(t, "dispatch")
	r := collapsed([]byte("main (/d.py:3);fill (/d.py:9) 10\n" +
		"main (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 25\n" +
		"main (/d.py:3);keep (/tmp/" + leak.line + ");c10::alloc_cpu(unsigned long) 50\n" +
		"main;remember (/tmp/" + cache.line + ") 15\nnone 0\n"))
	if len(r.stacks) != 3 {
		t.Fatalf("%d stacks, want 3: %v", len(r.stacks), r.stacks)
	}
	if leakRank, cacheRank := r.rankOf(leak), r.rankOf(cache); leakRank != 1 || cacheRank != 2 {
		t.Errorf("the leak is number %d and the cache %d, want 1 and 2", leakRank, cacheRank)
	}
	if got := r.stacks[0][0]; got != "c10::alloc_cpu(unsigned long)" {
		t.Errorf("the leaf is %q", got)
	}
	if p := (place{line: "dispatch.py:5"}); p.is("keep (/tmp/dispatch.py:52)") {
		t.Error("line 5 matches line 52")
	}
}

// readFrom reads the report of a tool on the program loop from a file.
func readFrom(
	t *testing.T, name, text string, read func(reporter) (report, error),
) (report, place) {
	t.Helper()
	r := reporter{outer: t.TempDir(), pid: 7}
	r.program, r.leak, r.cache = placesNamed(t, "loop")

	path := filepath.Join(r.outer, name)
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	tracertest.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	got := tracertest.Must(read(r))(t)
	return got, r.leak
}

func TestReadMemleak(t *testing.T) {
	r, leak := readFrom(t, outputFile, `Tracing outstanding memory allocs...  Hit Ctrl-C to end
[2:41:40] Top 2 stacks with outstanding allocations:
3000 bytes in 19995 allocations from stack
	0 [<000055feeae97492>] remember_block+0x22 [/tmp/loop]
	1 [<000055feeae97493>] main+0x40 [/tmp/loop]
1000 bytes in 4 allocations from stack
	0 [<000055feeae974ae>] keep_block+0xe [/tmp/loop]
done
`, readMemleak)
	if at := r.rankOf(leak); at != 2 || len(r.stacks) != 2 {
		t.Errorf("the leak is number %d of %d, want 2 of 2", at, len(r.stacks))
	}
}

// The summary is written by its own types, so that its keys are allocscope's.
func TestReadAllocscope(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	suspects := []summary.Suspect{{
		Path:    []string{"keep_block (/tmp/loop)", "leaf (/lib/c)"},
		Callers: []string{"main (/tmp/loop)"},
	}}

	for _, c := range []struct {
		suspects   []summary.Suspect
		cacheTrend growth.Trend
		stacks     int
	}{
		{suspects, growth.TrendAccumulating, 1},
		{suspects, growth.TrendNoGrowth, 1},
		{nil, growth.TrendNoGrowth, 2},
	} {
		s := summary.Summary{Suspects: c.suspects, Accumulating: []summary.Accumulation{
			{
				Stack:       []string{"leaf (/lib/c)", "keep_block (/tmp/loop)"},
				Trend:       growth.TrendAccumulating,
				BytesPerMin: number(60),
			},
			{Stack: []string{"remember_block (/tmp/loop)"}, Trend: c.cacheTrend},
		}}
		s.Residents = []summary.Resident{{Process: 7, EndBytes: number(100)}}
		s.Breakdown = []summary.BreakdownRow{
			{Process: 7, Kind: growth.KindHeap, EndBytes: 97},
			{Process: 7, Kind: growth.KindSwapped, EndBytes: 50},
			{Process: 8, Kind: growth.KindHeap, EndBytes: 50},
		}
		text := tracertest.Must(json.Marshal(s))(t)

		file := filepath.Join(traceFolder, "summary.json")
		r, leak := readFrom(t, file, string(text), readAllocscope)
		if at := r.rankOf(leak); at != 1 || len(r.stacks) != c.stacks {
			t.Errorf("the leak is number %d of %d, want 1 of %d", at, len(r.stacks), c.stacks)
		}
		if r.rate != 60 || r.off != -3 {
			t.Errorf("the rate is %v and the rows are off by %d, want 60 and -3", r.rate, r.off)
		}
		if isLeak := c.cacheTrend == growth.TrendAccumulating; r.cache != isLeak {
			t.Errorf("a cache that is %s is called a leak: %v", c.cacheTrend, r.cache)
		}
	}
}
