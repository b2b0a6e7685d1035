package markdown

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/report"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// results are summaries of real traces, without data that no result shows.
const results = "../words/testdata/results"

func readTrace(t *testing.T, name string, replace ...string) *report.Trace {
	t.Helper()
	raw := tracertest.Must(os.ReadFile(filepath.Join(results, name+".json")))(t)
	text := strings.NewReplacer(replace...).Replace(string(raw))
	s := tracertest.Must(summary.Read(strings.NewReader(text)))(t)
	return &report.Trace{Summary: *s, Dir: "/home/zebu user/traces/allocscope-" + name, Rows: rising()}
}

// rising are rows of five minutes in which RSS rises from 100 to 399 MiB, with a peak of 500 MiB.
func rising() (rows []growth.Row) {
	for second := range 300 {
		size := int64(100+second) << 20
		if second == 150 {
			size = 500 << 20
		}
		row := growth.Row{Sample: growth.UnknownSample()}
		row.Elapsed, row.RSS = time.Duration(second)*time.Second, size
		row.CudaAllocated, row.GPUUsed = size, size
		rows = append(rows, row)
	}
	return rows
}

func written(t *testing.T, trace *report.Trace) string {
	t.Helper()
	var text strings.Builder
	tracertest.NoError(t, Write(&text, trace))
	return text.String()
}

// TestWrite compares the texts of two traces with golden files: of a leak in RSS, and of one on a GPU.
func TestWrite(t *testing.T) {
	for _, name := range []string{"objects", "gpu"} {
		exporttest.Golden(t, name+".md", written(t, readTrace(t, name)))
	}
}

// TestBounds proves that no result makes more than 60 lines, even beside all that a trace can lose.
func TestBounds(t *testing.T) {
	paths, err := filepath.Glob(results + "/*.json")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d summaries: %v", len(paths), err)
	}
	for _, path := range paths {
		trace := readTrace(t, strings.TrimSuffix(filepath.Base(path), ".json"))
		for kind := range 20 {
			trace.Missing = append(trace.Missing, strings.Repeat("missing ", 20))
			trace.Summary.Breakdown = append(trace.Summary.Breakdown, summary.BreakdownRow{
				Process: trace.Summary.Process.PID, Kind: growth.Kind(rune('a' + kind)), EndBytes: 1,
			})
			deep := summary.Accumulation{Share: 0.1}
			for i := range 100 {
				deep.Stack = append(deep.Stack, fmt.Sprintf("f (/app/f.py:%d)", i))
			}
			trace.Summary.Accumulating = append(trace.Summary.Accumulating, deep)
			for i := range trace.Summary.GPUMemory {
				g := &trace.Summary.GPUMemory[i]
				g.Accumulating = append(g.Accumulating, deep)
				g.Breakdown = append(g.Breakdown, summary.GPUBreakdownRow{
					Kind: growth.Kind(rune('a' + kind)), EndBytes: 1,
				})
			}
		}
		text := written(t, trace)
		if n := strings.Count(text, "\n"); n > maxLines || n < 10 {
			t.Errorf("%s: %d lines:\n%s", path, n, text)
		}
	}
}

// TestPrivate proves that users, folders and arguments are left out, and files and lines stay.
func TestPrivate(t *testing.T) {
	const secret = "zebu"
	trace := readTrace(t, "objects", "/src/objects.py", "/home/"+secret+" user/src/objects.py")
	s := &trace.Summary
	s.Process.Arguments = []string{"/usr/bin/python3", "objects.py", "--token", secret}
	s.Process.Executable = "/home/" + secret + "/bin/python3"
	s.CommandLine = []string{"allocscope", "--output", "/" + secret}
	s.Marks = []summary.Mark{{Text: secret}}
	s.Sources = append(s.Sources,
		summary.Source{Name: "fault", State: summary.SourceFailed, SourceFailure: growth.SourceFailure{
			Reason: growth.SourceOther, Detail: "open /home/my " + secret + ": permission denied",
		}},
		summary.Source{Name: "heap", State: summary.SourceFailed, SourceFailure: growth.SourceFailure{
			Reason: growth.Source32Bit, File: "/home/" + secret + "/my job",
		}})
	s.Processes[0].Identity = &summary.Identity{Node: secret, Pod: secret, Job: secret}
	s.Breakdown[0].File = "/home/" + secret + "/data"
	s.Breakdown[0].Name = s.Breakdown[0].File
	trace.Missing = []string{"Not all could be read: open /home/" + secret + "/x/timeline.csv."}

	text := written(t, trace)
	if strings.Contains(text, secret) {
		t.Errorf("has the secret:\n%s", text)
	}
	for _, want := range []string{"objects.py:10", "python3 objects.py", "my job", "timeline.csv"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
}

// plainLine matches the lines of Markdown that are no code: rows of three cells without a character
// that Markdown or GitHub knows.
var plainLine = regexp.MustCompile(`^(\| [\w ,'()?+.-]+ \| [\w .+:-]+ \| [\w .+:-]+ \|)?$`)

// TestHostile proves that names which look like Markdown stay within code, by the rules of fences
// (https://spec.commonmark.org/0.31.2/#fenced-code-blocks).
func TestHostile(t *testing.T) {
	for _, name := range []string{
		"```", "   ````", "~~~", "<img src=x>", "| a | b |", "@someone", "pytorch#123", "[x](http://x)",
		"www.example.org", "` `` ```",
	} {
		trace := readTrace(t, "objects", "log_metrics", name, "objects.py", name+".py")
		s := &trace.Summary
		s.Software = growth.Software{Python: name, Torch: name, Libc: name}
		s.Kernel, s.Version, s.Process.Command = name, name, name
		for i := range s.Breakdown {
			s.Breakdown[i].Kind += growth.Kind(name)
		}
		s.Breakdown = append(s.Breakdown, summary.BreakdownRow{
			Process: s.Process.PID, Kind: growth.Kind(name), EndBytes: 1,
		})
		trace.Missing = []string{name}

		fence := ""
		for line := range strings.Lines(written(t, trace)) {
			line = strings.TrimSuffix(line, "\n")
			bare := strings.TrimLeft(line, " ")
			ticks := bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
			switch {
			case fence == "" && len(ticks) >= 3 && strings.TrimLeft(bare, "`") == "text":
				fence = ticks
			case fence == "" && !plainLine.MatchString(line):
				t.Errorf("%q: is no code: %q", name, line)
			case fence != "" && len(ticks) >= len(fence) && strings.TrimSpace(bare) == ticks &&
				len(line)-len(bare) <= 3:
				fence = ""
			}
		}
		if fence != "" {
			t.Errorf("%q: a fence is open at the end", name)
		}
	}
}
