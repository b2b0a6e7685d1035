package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// parseProfile reads a file with pprof's own library, which takes the allocator's frames out as
// DropFrames says.
func parseProfile(t *testing.T, path string) *profile.Profile {
	t.Helper()
	file := tracertest.Must(os.Open(path))(t)
	defer file.Close()
	p, err := profile.Parse(file)
	if err == nil {
		err = p.CheckValid()
	}

	if err == nil {
		err = p.RemoveUninteresting()
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}

	return p
}

func readProfile(t *testing.T, dir, name string) *profile.Profile {
	t.Helper()
	return parseProfile(t, filepath.Join(dir, name))
}

// values of a sample, by the types that allocscope writes, without resident memory.
type values struct{ allocObjects, allocSpace, inuseObjects, inuseSpace int64 }

// flat sums the samples whose leaf is the function.
func flat(p *profile.Profile, function string) values {
	var sum [5]int64
	for _, s := range p.Sample {
		if s.Location[0].Line[0].Function.Name == function {
			for i, v := range s.Value {
				sum[i] += v
			}
		}
	}
	return values{sum[0], sum[1], sum[2], sum[3]}
}

// total sums the samples of a kind.
func total(p *profile.Profile, kind growth.Kind) (inuseObjects, inuseSpace int64) {
	for _, s := range p.Sample {
		if s.Label["kind"][0] == string(kind) {
			inuseObjects += s.Value[2]
			inuseSpace += s.Value[3]
		}
	}
	return inuseObjects, inuseSpace
}

func mustHold(t *testing.T, what string, got, want values) {
	t.Helper()
	if got != want {
		t.Errorf("%s has %+v, want %+v", what, got, want)
	}
}

// mustHaveLeaked checks for the objects that leak_here has allocated, in a profile of a trace.
func mustHaveLeaked(t *testing.T, dir, name string, n, size int64) {
	t.Helper()
	mustHold(t, "leak_here", flat(readProfile(t, dir, name), "leak_here"), heldObjects(n, size))
}

// objects of one size that are alive and have never been joined by others.
func heldObjects(n, size int64) values { return values{n, n * size, n, n * size} }

var (
	topHeader = regexp.MustCompile(`(?m)^ +flat +flat% +sum% +cum +cum%$`)
	topRow    = regexp.MustCompile(`^ *(\S+) +\S+ +\S+ +(\S+) +\S+ +(.*)$`)
)

// pprofTop is the table of go tool pprof -top: rows "flat cum name", as ordered there.
func pprofTop(t *testing.T, arguments ...string) []string {
	t.Helper()
	arguments = append([]string{
		"tool", "pprof", "-top", "-symbolize=none", "-nodecount=100000",
		"-nodefraction=0", "-edgefraction=0",
	}, arguments...)

	out, err := exec.Command("go", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}

	at := topHeader.FindIndex(out)
	if at == nil {
		t.Fatalf("go %s prints no table:\n%s", strings.Join(arguments, " "), out)
	}

	var rows []string
	for line := range strings.Lines(strings.TrimPrefix(string(out[at[1]:]), "\n")) {
		columns := topRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if columns == nil {
			t.Fatalf("row %q of go tool pprof -top", line)
		}
		rows = append(rows, strings.Join(columns[1:], " "))
	}

	return rows
}

// readFile reads the file at the joined path.
func readFile(t *testing.T, path ...string) string {
	t.Helper()
	data := tracertest.Must(os.ReadFile(filepath.Join(path...)))(t)
	return string(data)
}

// readSummary decodes summary.json, in which nothing may stand that is not declared, and whose
// breakdown must balance.
func readSummary(t *testing.T, dir string) summary.Summary {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(readFile(t, dir, folder.SummaryFile)))
	decoder.DisallowUnknownFields()
	var s summary.Summary
	if err := decoder.Decode(&s); err != nil {
		t.Fatalf("%s: %v", folder.SummaryFile, err)
	}

	if decoder.More() {
		t.Errorf("%s holds more than one value", folder.SummaryFile)
	}

	mustBalance(t, &s)
	return s
}

func mustHaveEnded(t *testing.T, dir, why string) summary.Summary {
	t.Helper()
	s := readSummary(t, dir)
	if s.Ended != why {
		t.Errorf("ended: %q, want %q", s.Ended, why)
	}
	return s
}

// mustBalance checks for the rows of each process to sum to its RSS, as the kernel counts, to the
// byte, and the rows of the tree to no more than all of them together.
func mustBalance(t *testing.T, s *summary.Summary) {
	t.Helper()
	type rss struct{ start, end int64 }
	want, all := make(map[int]rss), rss{}
	for _, r := range s.Residents {
		start, end := bytesOf(r.StartBytes), bytesOf(r.EndBytes)
		want[r.Process] = rss{start, end}
		all = rss{all.start + start, all.end + end}
		known := rss{bytesOf(s.RSS.BaselineBytes), bytesOf(s.RSS.EndBytes)}
		if known != want[r.Process] && r.Process == s.Process.PID {
			t.Errorf("RSS %+v, in the breakdown %+v", known, want[r.Process])
		}
	}

	got := make(map[int]rss)
	for _, row := range s.Breakdown {
		if row.Kind != growth.KindSwapped {
			sum := got[row.Process]
			got[row.Process] = rss{sum.start + row.StartBytes, sum.end + row.EndBytes}
		}
	}

	if tree := got[0]; tree.start > all.start || tree.end > all.end {
		t.Errorf("the rows of the tree sum to %+v, more than those of its processes, %+v", tree,
			all)
	}
	if delete(got, 0); !maps.Equal(got, want) {
		t.Errorf("the rows sum to %+v by process, and RSS is %+v", got, want)
	}
}

// bytesOf is a size of the summary; 0: there was nothing.
func bytesOf(size *int64) int64 {
	if size == nil {
		return 0
	}
	return *size
}

// checkBreakdown checks for the kernel's numbers in the summary and, to the byte, in the profiles.
func checkBreakdown(t *testing.T, h *leakTrace) {
	s := readSummary(t, h.folder)
	if len(s.Residents) != 1 || !s.Residents[0].Traced || !s.Residents[0].HeapTraced {
		t.Errorf("residents %+v, want the target alone", s.Residents)
	}

	baseline, end := *s.RSS.BaselineBytes, *s.RSS.EndBytes
	for file, want := range map[string]int64{
		folder.WarmupFile: baseline, folder.PlateauFile: end,
		folder.GrowthFile: end - baseline,
	} {
		if got := residentSpace(t, readProfile(t, h.folder, file), h.target.PID()); got != want {
			t.Errorf("resident_space of %s is %d, the summary's RSS %d", file, got, want)
		}
	}

	if end < h.rssAfter-rssSlack || end > h.rssAfter+rssSlack {
		t.Errorf("RSS of %d bytes at the end; the kernel said %d", end, h.rssAfter)
	}
}

// residentSpace sums the samples of a process, each of which must have a kind and a component.
func residentSpace(t *testing.T, p *profile.Profile, pid int) (sum int64) {
	t.Helper()
	last := len(p.SampleType) - 1
	if p.SampleType[last].Type != "resident_space" || p.DefaultSampleType != "resident_space" {
		t.Fatalf("last sample type %v, default %s", p.SampleType[last], p.DefaultSampleType)
	}

	for _, s := range p.Sample {
		if s.Value[last] != 0 && (len(s.Label["kind"]) != 1 || len(s.Label["component"]) != 1) {
			t.Fatalf("labels %v of a sample of %d bytes", s.Label, s.Value[last])
		}
		if slices.Equal(s.Label["pid"], []string{itoa(pid)}) {
			sum += s.Value[last]
		}
	}

	return sum
}
