package words

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// The summaries are of real traces, without data that no result shows.
func TestResultOf(t *testing.T) {
	paths, err := filepath.Glob("testdata/results/*.json")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d summaries: %v", len(paths), err)
	}

	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			s := readSummary(t, path)
			result := ResultOf(s, Place{Dir: "allocscope-" + name, Sudo: true})
			mustFit(t, result)
			lines := result.Lines(nil)
			for _, line := range lines {
				if strings.HasSuffix(line, "...") {
					t.Errorf("is cut: %s", line)
				}
			}
			exporttest.Golden(t, filepath.Join("results", name+".txt"), strings.Join(lines, "\n")+"\n")
		})
	}
}

// A result says what free memory rests on, and which loss keeps it from being known.
func TestLost(t *testing.T) {
	const complete, sampled, lost = "every malloc and free was traced", "were sampled all the time",
		"what is free is not known: 27,292 allocations not tracked, ≥1.00 GiB (raise --max-live)"
	full := summary.Loss{Code: growth.LossLiveFull, Count: 27292, Bytes: 1 << 30}
	undecided := func(s *summary.Summary) {
		s.WhyCode, s.Losses = "", []summary.Loss{full}
		s.Diagnoses = []summary.Diagnosis{
			{Process: s.Process.PID, Cause: diagnosis.Undecided, Share: 1},
		}
	}

	for name, c := range map[string]struct {
		change func(s *summary.Summary)
		want   []string
		no     []string
	}{
		"nothing lost": {
			func(s *summary.Summary) { s.IntervalBytes = 1 },
			[]string{complete, "and no leak of objects"},
			[]string{lost},
		},
		"sampled": {func(*summary.Summary) {}, []string{sampled}, []string{complete}},
		"lost":    {undecided, []string{lost}, []string{complete, sampled, "no leak", "incomplete"}},
		"of a process": {
			func(s *summary.Summary) { undecided(s); s.Losses[0].PID = s.Process.PID },
			[]string{lost},
			nil,
		},
		"of another": {
			func(s *summary.Summary) { undecided(s); s.Losses[0].PID = s.Process.PID + 1 },
			[]string{"the cause of 100% of the growth is not known"},
			[]string{"what is free"},
		},
		"lost, and walked": {
			func(s *summary.Summary) {
				s.Losses = []summary.Loss{full}
				for i := range s.Diagnoses {
					s.Diagnoses[i].Walked = true
				}
			},
			[]string{"FRAGMENTATION", "malloc's heaps were walked"},
			[]string{complete, "no leak"},
		},
		"lost, beside a cause": {
			func(s *summary.Summary) {
				undecided(s)
				s.Diagnoses[0].Share = 0.3
				s.Diagnoses = append(s.Diagnoses, summary.Diagnosis{
					Process: s.Process.PID, Cause: diagnosis.HeapLeak, Share: 0.7,
				})
			},
			[]string{"NOTE      " + lost},
			nil,
		},
	} {
		s := readSummary(t, "testdata/results/frag.json")
		c.change(s)

		text := strings.Join(ResultOf(s, Place{}).Lines(nil), "\n")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: does not say %q:\n%s", name, want, text)
			}
		}

		for _, no := range c.no {
			if strings.Contains(text, no) {
				t.Errorf("%s: says %q:\n%s", name, no, text)
			}
		}
	}
}

// The first note is whole where all other blocks are full, too.
func TestLongNote(t *testing.T) {
	s := readSummary(t, "testdata/results/ranks.json")
	s.Sources = []summary.Source{{
		Name: "heap", State: summary.SourceFailed, SourceFailure: growth.SourceFailure{
			Reason: growth.SourceOther,
			Detail: "attach malloc in /usr/lib/x86_64-linux-gnu/libc.so.6: permission denied",
		},
	}}
	result := ResultOf(s, Place{Dir: "allocscope-ranks", Sudo: true})
	mustFit(t, result)
	exporttest.Golden(t, "results/ranks-note.txt", strings.Join(result.Lines(nil), "\n")+"\n")
}

func readSummary(t *testing.T, path string) *summary.Summary {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s summary.Summary
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// mustFit checks the bounds of a result. Only a command may be longer.
func mustFit(t *testing.T, r Result) {
	t.Helper()
	lines := r.Lines(nil)
	if len(lines) > maxResultLines {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > ResultWidth && !strings.Contains(line, binary) {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// Whatever a summary holds, the result has at most fifteen lines.
func TestLongResult(t *testing.T) {
	s := readSummary(t, "testdata/results/two.json")
	long := strings.Repeat("long ", 100)
	s.Process.Arguments = []string{"python3", long}
	for range 20 {
		c := s.Suspects[0]
		c.Function = "f" + long + " (/src/" + strings.ReplaceAll(long, " ", "_") + ".py:1)"
		c.Path, c.Component = nil, long
		s.Suspects = append(s.Suspects, c)
		s.Related = append(s.Related, summary.Related{PID: 1, Command: long, GrowthBytes: 1})
	}
	s.Outlier = &summary.Outlier{Rank: 1 << 30, Ranks: 1 << 30, Others: 1 << 29, Site: conclude.SiteOnlyThere}
	s.Ended = summary.EndedExit
	failure := growth.SourceFailure{Reason: growth.SourceOther, Detail: long}
	s.Sources = []summary.Source{{Name: "heap", State: summary.SourceFailed, SourceFailure: failure}}

	for _, class := range allClasses {
		s.Class, s.WhyCode = class, verdict.Reason(long)
		mustFit(t, ResultOf(s, Place{Dir: "dir"}))
	}

	s.Class, s.Suspects = verdict.ClassLeak, s.Suspects[:1]
	s.Suspects[0].Function, s.Suspects[0].Callers = strings.Repeat("f", 4096), nil
	s.Suspects[0].Path = nil
	mustFit(t, ResultOf(s, Place{Dir: "dir"}))
}

func TestOutlierLine(t *testing.T) {
	six, twelve, one := 6.04, 12.3, 1.36
	for _, c := range []struct {
		ratio *float64
		site  conclude.Site
		want  string
	}{
		{&six, conclude.SiteSame, "rank 3 grows 6.0x as fast as the other 7, by the same call site"},
		{
			&twelve, conclude.SiteOnlyThere,
			"rank 3 grows 12x as fast as the other 7, by a call site where they do not",
		},
		{&one, "", "rank 3 grows 1.4x as fast as the other 7"},
		{nil, "", "rank 3 grows, unlike the other 7"},
		{
			nil, conclude.SiteOnlyThere,
			"rank 3 grows, unlike the other 7, by a call site where they do not",
		},
	} {
		o := &summary.Outlier{Rank: 3, Ranks: 8, Others: 7, Ratio: c.ratio, Site: c.site}
		if got := OutlierLine(o); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	two := &summary.Outlier{Rank: 12, Ranks: 16, Others: 14, Ratio: &six, Site: conclude.SiteOnlyThere}
	want := "rank 12 (and 1 more) grows 6.0x as fast as the other 14, by a call site where they do not"
	if got := OutlierLine(two); got != want || len(got) > ResultWidth-labelWidth {
		t.Errorf("two: %q, want %q", got, want)
	}
	if got := OutlierLine(nil); got != "" {
		t.Errorf("no outlier: %q", got)
	}

	z := 97.6
	o := &summary.Outlier{
		Rank: 3, Ranks: 8, Others: 7, RateBytesPerMin: 90 << 20, OthersBytesPerMin: 15 << 20, Z: &z, Chance: 0.0123,
	}
	want = "rank 3: 90.00 MiB/min, median of the other 7: 15.00 MiB/min; robust z-score 98, " +
		"chance of noise 1.2%"
	if got := OutlierDetails(o); len(got) != 2 || got[1] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Memory that the kernel takes back is no cause of a leak, and growth that the user accepts is
// some.
func TestMisleading(t *testing.T) {
	s := readSummary(t, "testdata/results/two.json")
	s.Class = verdict.ClassLeak
	s.Diagnoses = []summary.Diagnosis{
		{Process: s.Process.PID, Cause: diagnosis.PageCache, Share: 0.75},
		{Process: s.Process.PID, Cause: diagnosis.HeapLeak, Share: 0.25},
	}
	if next := ResultOf(s, Place{}).Block(LabelDoNext); strings.Contains(next[0], "nothing") {
		t.Errorf("a leak beside mapped files: %q", next)
	}

	s.Class, s.WhyCode = verdict.ClassPlateau, verdict.ReasonTolerated
	if who := ResultOf(s, Place{}).Block(LabelWho); who != nil {
		t.Errorf("tolerated growth: %q", who)
	}
}

// Every cause has its texts, and a line in the table of the documentation.
func TestCauses(t *testing.T) {
	docs, err := os.ReadFile("../../docs/reference/verdict.md")
	if err != nil {
		t.Fatal(err)
	}
	for cause := diagnosis.Undecided + 1; cause < diagnosis.NumCauses; cause++ {
		text := causes[cause]
		if text.what == "" || text.long == "" || text.step == "" || cause.String() == "" {
			t.Errorf("cause %d (%s) has not all its texts: %+v", cause, cause, text)
		}
		if !strings.Contains(string(docs), "`"+cause.String()+"`") ||
			!strings.Contains(string(docs), text.step) {
			t.Errorf("the documentation lacks %s: %s", cause, text.step)
		}
	}
}

// TestTitle cuts the command, and neither the PID nor the duration.
func TestTitle(t *testing.T) {
	const rest = " (PID 2812345, started by 2812001), traced 1:02:03 with a gap of 12s"
	for _, command := range []string{
		"python3 a.py", strings.Repeat("train (PID 1), ", 10), strings.Repeat("日本語", 20),
	} {
		r := Result{Name: "LEVELLING OFF", Subject: command + rest}
		title := r.Lines(nil)[0]
		if width := ansi.StringWidth(title); width > ResultWidth || !strings.HasSuffix(title, rest) ||
			!strings.HasPrefix(title, r.Name+"   "+command[:9]) {
			t.Errorf("%d: %q", width, title)
		}
	}

	r := Result{Name: "STABLE", Subject: strings.Repeat("series ", 30)}
	if title := r.Lines(nil)[0]; ansi.StringWidth(title) != ResultWidth {
		t.Errorf("%q", title)
	}
}
