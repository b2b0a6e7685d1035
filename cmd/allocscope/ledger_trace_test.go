package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
)

// A writtenRow is one of summary.json.
type writtenRow struct {
	// Process is a PID; 0: the tree.
	Process int         `json:"process"`
	Kind    growth.Kind `json:"kind"`
	Name    string      `json:"name"`
	Start   int64       `json:"start_bytes"`
	End     int64       `json:"end_bytes"`
	Delta   int64       `json:"delta_bytes"`
	Error   int64       `json:"error_bytes"`
}

// A ledgerTrace is what one trace has written of a loader between two moments.
type ledgerTrace struct {
	export.Summary
	rows           []writtenRow
	folder, stdout string
	pid            int
	from, to       moment
}

// traceLoader traces a loader by several commands at once, each with flags of its own. It stands still when their windows
// begin and when they end, so that all of them must come to the same numbers as the kernel.
func traceLoader(t *testing.T, flags ...[]string) []ledgerTrace {
	t.Helper()
	const warmup, before = "12s", 3 // snapshots before the boundary's: at 0, 5 and 10 s
	l := startLoader(t)
	var commands []*command
	var traces []ledgerTrace
	for _, own := range flags {
		c, folder := tracing(t, l.Target, append(own, "--warmup", warmup, "--snapshot-every", "5s")...)
		commands, traces = append(commands, c), append(traces, ledgerTrace{folder: folder, pid: l.PID()})
	}
	from := l.train(40) // all stacks have been seen
	for i, c := range commands {
		c.awaitFile(traces[i].folder, fmt.Sprintf("snapshots/%03d.pb.gz", before))
	}
	to := l.train(200)
	for i, c := range commands {
		c.interrupt()
		v := &traces[i]
		v.Summary, v.rows = readSummary(t, v.folder), readLedger(t, v.folder)
		v.stdout, v.from, v.to = c.stdout.String(), from, to
		t.Logf("%s\n%s\n%s", strings.Join(c.Args, " "), c.stderr.String(), v.stdout)
	}
	return traces
}

func readLedger(t *testing.T, folder string) []writtenRow {
	t.Helper()
	var s struct {
		Ledger []writtenRow `json:"ledger"`
	}
	if err := json.Unmarshal([]byte(readFile(t, folder, export.SummaryFile)), &s); err != nil {
		t.Fatal(err)
	}
	return s.Ledger
}

// own are the rows of the trainer itself, largest growth first.
func (v ledgerTrace) own() []writtenRow {
	rows := slices.DeleteFunc(slices.Clone(v.rows), func(r writtenRow) bool { return r.Process != v.pid })
	slices.SortFunc(rows, func(a, b writtenRow) int { return int(b.Delta - a.Delta) })
	return rows
}

func (v ledgerTrace) grown() int64 { return v.to.rss - v.from.rss }

// shares are parts of the growth of RSS, by kind.
func (v ledgerTrace) shares() map[growth.Kind]float64 {
	shares := make(map[growth.Kind]float64)
	for _, r := range v.own() {
		shares[r.Kind] += float64(r.Delta) / float64(v.grown())
	}
	return shares
}

// mustBePart wants two parts of the growth of RSS to be within five points of each other.
func mustBePart(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.05 {
		t.Errorf("%s: %.1f %% of the growth of RSS, want %.1f %% within 5 points", what, 100*got, 100*want)
	}
}

// sum of what is resident.
func (v ledgerTrace) sum() (sum writtenRow) {
	for _, r := range v.own() {
		if r.Kind != growth.KindSwapped {
			sum.Start, sum.End, sum.Delta = sum.Start+r.Start, sum.End+r.End, sum.Delta+r.Delta
		}
	}
	return sum
}

// mustSumToRSS wants the kernel's own numbers in the rows and in the profile, to the byte.
func (v ledgerTrace) mustSumToRSS(t *testing.T) {
	t.Helper()
	for _, r := range v.rows {
		if r.Delta != r.End-r.Start {
			t.Errorf("%+v does not add up", r)
		}
	}
	if sum := v.sum(); sum.Start != v.from.rss || sum.End != v.to.rss {
		t.Errorf("rows sum to %d at the boundary and %d at the end, the kernel's RSS is %d and %d", sum.Start, sum.End, v.from.rss, v.to.rss)
	}
	for file, want := range map[string]int64{export.WarmupFile: v.from.rss, export.PlateauFile: v.to.rss, export.GrowthFile: v.grown()} {
		if got := residentSpace(t, readProfile(t, v.folder, file), v.pid); got != want {
			t.Errorf("resident_space of %s is %d, the kernel's RSS %d", file, got, want)
		}
	}
}

// residentSpace sums the samples of a process, each of which must say whose memory it is and what sort.
func residentSpace(t *testing.T, p *profile.Profile, pid int) (sum int64) {
	t.Helper()
	last := len(p.SampleType) - 1
	if p.SampleType[last].Type != "resident_space" || p.DefaultSampleType != "resident_space" {
		t.Fatalf("last sample type %v, default %s; want resident_space", p.SampleType[last], p.DefaultSampleType)
	}
	for _, s := range p.Sample {
		if s.Value[last] != 0 && (len(s.Label["kind"]) != 1 || len(s.Label["owner"]) != 1) {
			t.Fatalf("labels %v of a sample of %d bytes, want kind and owner", s.Label, s.Value[last])
		}
		if slices.Equal(s.Label["pid"], []string{itoa(pid)}) {
			sum += s.Value[last]
		}
	}
	return sum
}

func (v ledgerTrace) mustExplain(t *testing.T) {
	t.Helper()
	mustBePart(t, "unexplained", v.shares()[growth.KindUnexplained], 0)
}

// mustNameTheLeak wants the planted line first, and what the allocator keeps free, each with its part of the growth.
func (v ledgerTrace) mustNameTheLeak(t *testing.T) {
	t.Helper()
	var first writtenRow
	if rows := v.own(); len(rows) > 0 {
		first = rows[0]
	}
	if line := leakLine(t); first.Kind != growth.KindHeap || !strings.Contains(first.Name, line) || !strings.Contains(first.Name, "keep") {
		t.Errorf("the first row is %+v, want heap of %s", first, line)
	}
	whole := float64(v.grown())
	mustBePart(t, "planted", float64(first.Delta)/whole, float64(v.to.planted-v.from.planted)/whole)
	mustBePart(t, "free heap", v.shares()[growth.KindRetained], float64(v.to.free-v.from.free)/whole)
}

// mustListTheWorkers wants a block of the whole tree.
func (v ledgerTrace) mustListTheWorkers(t *testing.T) {
	t.Helper()
	for _, r := range v.rows {
		if r.Process == 0 && strings.Contains(r.Name, "DataLoader worker") {
			return
		}
	}
	t.Errorf("no row of the tree is of the DataLoader workers: %+v", v.rows)
}

// mustNotName wants no holder of heap memory, and that the report says why.
func (v ledgerTrace) mustNotName(t *testing.T) {
	t.Helper()
	for _, r := range v.own() {
		if r.Kind == growth.KindHeap && strings.Contains(r.Name, ".py") {
			t.Errorf("%+v names a holder of heap memory, though none is known", r)
		}
	}
	mustSay(t, "stdout", v.stdout, "cannot", "heap")
}

// While it trains, its RSS changes from moment to moment: what the kernel says is known from its steps alone.
func TestWhileARealTrainerTrainsTheLedgerAddsUpToo(t *testing.T) {
	t.Parallel()
	l := startLoader(t)
	c, folder := tracing(t, l.Target, "--interval", "64KiB", "--duration", "25s", "--warmup", "12s", "--snapshot-every", "1s")
	var moments []moment
	for ended := false; !ended; {
		moments = append(moments, l.train(5))
		select {
		case <-c.ended:
			ended = true
		default:
		}
	}
	c.mustEnd(0)
	v := ledgerTrace{Summary: readSummary(t, folder), rows: readLedger(t, folder), folder: folder, stdout: c.stdout.String(), pid: l.PID()}
	t.Logf("%s\n%s", c.stderr.String(), v.stdout)
	v.from, v.to = between(moments, v.Started.Add(seconds(*v.BoundaryS))), between(moments, v.Started.Add(seconds(v.DurationS)))
	grown := residentSpace(t, readProfile(t, folder, export.GrowthFile), v.pid)
	if sum := v.sum(); sum.Delta != grown {
		t.Errorf("rows sum to %d, resident_space of %s to %d", sum.Delta, export.GrowthFile, grown)
	}
	mustBePart(t, "what the ledger sums to", float64(grown)/float64(v.grown()), 1)
	v.mustExplain(t)
	v.mustNameTheLeak(t)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestOfARealTrainerEveryMegabyteIsInTheLedger(t *testing.T) {
	t.Parallel()
	traces := traceLoader(t, []string{"--interval", "64KiB"}, []string{"--sources", "mapping,fault,step"})
	whole, blind := traces[0], traces[1]
	for _, v := range traces {
		v.mustSumToRSS(t)
		v.mustExplain(t)
		v.mustListTheWorkers(t)
	}
	whole.mustNameTheLeak(t)
	blind.mustNotName(t)
	mustBeAlike(t, whole.shares(), blind.shares())
}

// mustBeAlike compares the parts of kinds that do not depend on who is known to hold heap memory.
func mustBeAlike(t *testing.T, whole, blind map[growth.Kind]float64) {
	t.Helper()
	for kind := range blind {
		whole[kind] += 0
	}
	for kind, share := range whole {
		mustBePart(t, "without heap, kind "+string(kind), blind[kind], share)
	}
}
