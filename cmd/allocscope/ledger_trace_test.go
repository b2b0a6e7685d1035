package main

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// A ledgerTrace is what one trace has written of a loader between two moments.
type ledgerTrace struct {
	summary.Summary
	folder, stdout string
	pid            int
	from, to       moment
	start, end     []int64 // what RSS was when it began and ended: once its probes were there, and until they went
}

// traceLoader traces a loader by several commands at once, each with flags of its own. It stands still when their windows
// begin and when they end, so that all of them must come to the same numbers as the kernel.
func traceLoader(t *testing.T, l loader, steps int, flags ...[]string) []ledgerTrace {
	t.Helper()
	var commands []*command
	var traces []ledgerTrace
	from := l.train(10)
	for _, own := range flags {
		c, folder := tracing(t, l.Target, append(own, "--warmup", loaderWarmup)...)
		commands, traces = append(commands, c), append(traces, ledgerTrace{folder: folder, pid: l.PID()})
	}
	start := risingRSS(t, l.PID(), func() {
		for i, c := range commands {
			c.awaitFile(traces[i].folder, boundaryFile)
		}
	})
	from.rss = start[len(start)-1]
	to := l.train(steps)
	for i, c := range commands {
		v := &traces[i]
		v.start, v.end = start, risingRSS(t, l.PID(), c.interrupt)
		to.rss = v.end[0]
		v.Summary, v.from, v.to, v.stdout = readSummary(t, v.folder), from, to, c.stdout.String()
		t.Logf("%s\n%s\n%s", strings.Join(c.Args, " "), c.stderr.String(), v.stdout)
	}
	return traces
}

// restingRSS is the RSS of a process that stands still, once it has not changed for a while: breakpoints come and go one by one.
func restingRSS(t *testing.T, pid int) int64 {
	t.Helper()
	rss, since := rssOf(t, pid), time.Now()
	eventually(t, "RSS rests", func() bool {
		if now := rssOf(t, pid); now != rss {
			rss, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
	return rss
}

// risingRSS are the values that the RSS of a process which stands still takes once it rests, while something is done and until it
// falls. Removed breakpoints take their pages with them. Where another process's breakpoints are removed, in a library that both have
// mapped, the kernel looks at the same places of this one, and these pages come back.
func risingRSS(t *testing.T, pid int, do func()) []int64 {
	t.Helper()
	values, stop, done := []int64{restingRSS(t, pid)}, make(chan struct{}), make(chan error, 1)
	go func() { done <- appendRises(&values, pid, stop) }()
	func() {
		defer close(stop) // also where the test ends there
		do()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return values
}

// appendRises adds what RSS rises to, until it falls or is told to stop.
func appendRises(values *[]int64, pid int, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Millisecond):
		}
		now, err := readRSS(pid)
		last := (*values)[len(*values)-1]
		switch {
		case err != nil || now < last:
			return err
		case now > last:
			*values = append(*values, now)
		}
	}
}

// loaderWarmup is long enough for unwind tables to be made meanwhile; at its end that file is written.
const loaderWarmup, boundaryFile = "10s", "snapshots/001.pb.gz"

// of are the rows of a process, largest growth first.
func (v ledgerTrace) of(pid int) []summary.BreakdownRow {
	rows := slices.DeleteFunc(slices.Clone(v.Breakdown), func(r summary.BreakdownRow) bool { return r.Process != pid })
	slices.SortFunc(rows, func(a, b summary.BreakdownRow) int { return int(b.DeltaBytes - a.DeltaBytes) })
	return rows
}

func (v ledgerTrace) grown() int64 { return v.to.rss - v.from.rss }

// shares are parts of the growth of RSS, by kind.
func (v ledgerTrace) shares() map[growth.Kind]float64 {
	shares := make(map[growth.Kind]float64)
	for _, r := range v.of(v.pid) {
		shares[r.Kind] += float64(r.DeltaBytes) / float64(v.grown())
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

// sum of what a process has resident.
func (v ledgerTrace) sum(pid int) (sum summary.BreakdownRow) {
	for _, r := range v.of(pid) {
		if r.Kind != growth.KindSwapped {
			sum.StartBytes, sum.EndBytes, sum.DeltaBytes = sum.StartBytes+r.StartBytes, sum.EndBytes+r.EndBytes, sum.DeltaBytes+r.DeltaBytes
		}
	}
	return sum
}

// mustSumToRSS wants the kernel's own numbers in the rows and in the profile, to the byte.
func (v ledgerTrace) mustSumToRSS(t *testing.T) {
	t.Helper()
	for _, r := range v.Breakdown {
		if r.DeltaBytes != r.EndBytes-r.StartBytes {
			t.Errorf("%+v does not add up", r)
		}
	}
	sum := v.sum(v.pid)
	if !slices.Contains(v.start, sum.StartBytes) || !slices.Contains(v.end, sum.EndBytes) {
		t.Errorf("rows sum to %d at the boundary and %d at the end, the kernel's RSS is %d and %d", sum.StartBytes, sum.EndBytes, v.start, v.end)
	}
	for file, want := range map[string]int64{folder.WarmupFile: sum.StartBytes, folder.PlateauFile: sum.EndBytes, folder.GrowthFile: sum.DeltaBytes} {
		if got := residentSpace(t, readProfile(t, v.folder, file), v.pid); got != want {
			t.Errorf("resident_space of %s is %d, its rows sum to %d", file, got, want)
		}
	}
}

// residentSpace sums the samples of a process, each of which must say whose memory it is and what sort.
func residentSpace(t *testing.T, p *pprof.Profile, pid int) (sum int64) {
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
	var first summary.BreakdownRow
	if rows := v.of(v.pid); len(rows) > 0 {
		first = rows[0]
	}
	if line := leakLine(t); first.Kind != growth.KindHeap || !strings.Contains(first.Name, line) || !strings.Contains(first.Name, "keep") {
		t.Errorf("the first row is %+v, want heap of %s", first, line)
	}
	whole := float64(v.grown())
	mustBePart(t, "planted", float64(first.DeltaBytes)/whole, float64(v.to.planted-v.from.planted)/whole)
	mustBePart(t, "free heap", v.shares()[growth.KindRetained]+v.reused(first), float64(v.to.free-v.from.free)/whole)
}

// reused is the change in pages from before the attach, and in what lives besides the planted line, as a part of the growth of RSS. What the
// trainer caches is as large as ever, so that together they are free heap from before the attach, less what has been allocated there since.
func (v ledgerTrace) reused(planted summary.BreakdownRow) float64 {
	shares := v.shares()
	return shares[growth.KindBefore] + shares[growth.KindHeap] - float64(planted.DeltaBytes)/float64(v.grown())
}

// mustListTheWorkers wants rows of each worker that sum to its RSS, and those of the tree to be what all have of their own:
// the kernel divides each page of anonymous memory by how many have it, and nobody outside does. Some pages, which the trainer
// has replaced since the fork and which both workers still share, are in no row of the tree.
func (v ledgerTrace) mustListTheWorkers(t *testing.T, workers []int) {
	t.Helper()
	own := rollupOf(t, v.pid)["Pss_Anon"]
	for _, pid := range workers {
		own += rollupOf(t, pid)["Pss_Anon"]
		sum := v.sum(pid)
		i := slices.IndexFunc(v.Residents, func(p summary.Resident) bool { return p.Process == pid && p.Role == growth.RoleLoaderWorker })
		if i < 0 || *v.Residents[i].StartBytes != sum.StartBytes || *v.Residents[i].EndBytes != sum.EndBytes {
			t.Errorf("rows of worker %d sum to %+v, want them to be among %+v", pid, sum, v.Residents)
		}
	}
	tree := v.sum(0).EndBytes
	for _, r := range v.of(0) {
		if r.Kind == growth.KindFile || r.Kind == growth.KindShmem || r.Kind == growth.KindKernel {
			tree -= r.EndBytes
		}
	}
	if math.Abs(float64(tree-own)) > 0.03*float64(own) {
		t.Errorf("anonymous memory of the tree is %d by its rows, %d by the kernel", tree, own)
	}
}

// holderless are the names of heap memory of which nobody is said to hold it.
var holderless = regexp.MustCompile(`^holder not known(: (main heap|arena 0x[0-9a-f]+|mmapped chunks|other areas of the allocator))?$`)

// mustNotName wants no holder of heap memory, nor that any is said to be free, and that the report says why.
func (v ledgerTrace) mustNotName(t *testing.T) {
	t.Helper()
	for _, r := range v.Breakdown {
		if r.Kind == growth.KindRetained || r.Kind == growth.KindMetadata || r.Kind == growth.KindHeap && !holderless.MatchString(r.Name) {
			t.Errorf("%+v tells more of heap memory than is known", r)
		}
	}
	for _, s := range readProfile(t, v.folder, folder.PlateauFile).Sample {
		if s.Label["kind"][0] != string(growth.KindHeap) {
			continue
		}
		for _, l := range s.Location {
			if name := l.Line[0].Function.Name; l.Mapping != nil || !holderless.MatchString("holder not known: "+name) && name != "[heap: holder not known]" {
				t.Errorf("a sample of heap memory is of %s", name)
			}
		}
	}
	mustSay(t, "stdout", v.stdout, "heap, holder not known", "Who holds heap memory cannot be told")
	if strings.Contains(v.stdout, "not freed") {
		t.Error("stdout says of heap memory that it has not been freed")
	}
	// The allocator counts all of its memory, also what was there before the attach and has been given back since.
	var before int64
	for _, r := range v.of(v.pid) {
		if r.Kind == growth.KindBefore && r.Name == "before attach: heap" {
			before += r.DeltaBytes
		}
	}
	mustBePart(t, "heap", v.heap()+float64(before)/float64(v.grown()), float64(v.to.planted+v.to.free-v.from.planted-v.from.free)/float64(v.grown()))
}

// heap is the part of the growth that is in the heap, free or not.
func (v ledgerTrace) heap() float64 {
	shares := v.shares()
	return shares[growth.KindHeap] + shares[growth.KindRetained] + shares[growth.KindMetadata]
}

// mustBeAlike compares the parts of kinds that do not depend on who is known to hold heap memory. Of the heap from before the
// attach, it does: objects that are known to have been born since take of it.
func mustBeAlike(t *testing.T, whole, blind ledgerTrace) {
	t.Helper()
	shares := blind.shares()
	mustBePart(t, "without source heap, the heap", blind.heap()+shares[growth.KindBefore], whole.heap()+whole.shares()[growth.KindBefore])
	ofHeap := []growth.Kind{growth.KindHeap, growth.KindRetained, growth.KindMetadata, growth.KindBefore}
	for kind := range whole.shares() {
		shares[kind] += 0
	}
	for kind, share := range shares {
		if !slices.Contains(ofHeap, kind) {
			mustBePart(t, "without source heap, kind "+string(kind), share, whole.shares()[kind])
		}
	}
}

// mustAdvise wants advice about something, or none.
func (v ledgerTrace) mustAdvise(t *testing.T, about string, want bool) {
	t.Helper()
	if got := slices.ContainsFunc(v.Advice, func(a summary.Advice) bool { return a.About == about }); got != want {
		t.Errorf("advice %+v; about %s: %t, want %t", v.Advice, about, got, want)
	}
}
