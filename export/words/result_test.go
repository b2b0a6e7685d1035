package words

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// results are summaries of real traces, without data that no result shows.
func results(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/results/*.json")
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d summaries: %v", len(paths), err)
	}
	return paths
}

func TestResultOf(t *testing.T) {
	for _, path := range results(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		t.Run(name, func(t *testing.T) {
			s := readSummary(t, path)
			result := ResultOf(s, Place{Dir: "allocscope-" + name, Sudo: true})
			mustFit(t, result)
			lines := result.Lines(ResultWidth, nil)
			for _, line := range lines {
				if strings.Contains(line, cut) {
					t.Errorf("is cut: %s", line)
				}
				for _, placeholder := range []string{"AFTER", "COMMAND", " PID ", " DIR", "<"} {
					isCommand := strings.Contains(line, binary)
					if isCommand && strings.Contains(line, placeholder) {
						t.Errorf("has the placeholder %s: %s", placeholder, line)
					}
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
	full := growth.Loss{Kind: growth.LossLiveFull, Count: 27292, Bytes: 1 << 30}
	undecided := func(s *summary.Summary) {
		s.WhyCode, s.Losses = "", []growth.Loss{full}
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
				s.Losses = []growth.Loss{full}
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

		text := strings.Join(ResultOf(s, Place{}).Lines(ResultWidth, nil), "\n")
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

// A leak that is proven by objects to which nothing refers has no keeper in any line, though one
// search has found one, and says what to look for.
func TestProvenHasNoKeeper(t *testing.T) {
	keeps := regexp.MustCompile(`\b(kept|keep|keeper)\b|see objects`)
	for _, l := range []summary.Lost{
		{},
		{Type: "bytes"},
		{Library: "fast.so", Function: "encode"},
		{Library: "PIL._imaging", Function: "getpixel", Caller: "Image.getpixel", Type: "int"},
	} {
		for _, name := range []string{"history", "objects", "images", "ranks"} {
			s := readSummary(t, "testdata/results/"+name+".json")
			l.Samples, l.Of, l.ApartS, l.Share = 15, 16, 20, 0.9
			s.Class, s.WhyCode, s.Lost = verdict.ClassLeak, verdict.ReasonLost, &l

			lines := ResultOf(s, Place{Dir: "d", Sudo: true}).Lines(ResultWidth, nil)
			text := strings.Join(lines, "\n")
			if found := keeps.FindString(text); found != "" {
				t.Errorf("%s, %+v: %q in\n%s", name, l, found, text)
			}
			if !strings.Contains(text, "missing") {
				t.Errorf("%s, %+v: no step in\n%s", name, l, text)
			}
		}
	}
}

// Objects that wait for the garbage collector are not kept.
func TestGarbageIsNotKept(t *testing.T) {
	s := readSummary(t, "testdata/results/objects.json")
	s.Suspects[0].StackIDs = []string{"7"}
	s.Keepers = []summary.Keeper{{
		PID: s.Process.PID, StackID: "7", Samples: 8, Garbage: 8,
		Reason: keeper.ReasonGarbage,
	}}
	text := strings.Join(ResultOf(s, Place{Dir: "d"}).Lines(ResultWidth, nil), "\n")
	if !strings.Contains(text, "that wait for the garbage collector") ||
		!strings.Contains(text, "garbage: waits for gc") || strings.Contains(text, "kept") {
		t.Error(text)
	}
}

// A trace that is not needed sees the end of growth that ends by itself.
func TestFillsUpSteps(t *testing.T) {
	s := readSummary(t, "testdata/results/shared.json")
	in := 720.0
	s.Class, s.WhyCode, s.ToLimit = verdict.ClassFillsUp, verdict.ReasonBounded, nil
	s.Fill = &summary.Fill{Of: verdict.BoundMemory, LeftBytes: 1 << 30, LevelBytes: 2 << 30, In: &in}
	want := []string{
		"nothing to fix", "to see it end: sudo allocscope trace 4020 --continue d --duration 15m",
	}
	got := ResultOf(s, Place{Dir: "d", Sudo: true}).Block(LabelDoNext)
	if !slices.Equal(got[:2], want) {
		t.Errorf("%q", got)
	}

	s = withSearch(t, keeper.Search{Samples: 8, Paths: []keeper.Path{pathTo("cache", 8)}})
	s.Keepers[0].Paths[0].Links[0].Limit = 20_000
	s.Class, s.WhyCode, s.ToLimit = verdict.ClassFillsUp, verdict.ReasonBounded, nil
	s.Fill = &summary.Fill{Of: verdict.BoundContainer, LeftBytes: 1 << 30, LevelBytes: 2 << 30, In: &in}
	got = ResultOf(s, Place{Dir: "d"}).Block(LabelDoNext)
	if want := "lower the limit of leaky_trainer.cache, if it takes too much when full"; got[0] != want {
		t.Errorf("%q, want %q", got, want)
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
	text := strings.Join(result.Lines(ResultWidth, nil), "\n")
	exporttest.Golden(t, "results/ranks-note.txt", text+"\n")
}

func readSummary(t *testing.T, path string) *summary.Summary {
	t.Helper()
	data, err := os.ReadFile(path)
	tracertest.NoError(t, err)
	var s summary.Summary
	tracertest.NoError(t, json.Unmarshal(data, &s))
	return &s
}

// mustFit checks the bounds of a result. Only a command may be longer.
func mustFit(t *testing.T, r Result) {
	t.Helper()
	lines := r.Lines(ResultWidth, nil)
	if len(lines) > maxResultLines {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > ResultWidth && !strings.Contains(line, binary) {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// A result is laid out for any width: by words, and with its PID in the first lines.
func TestWidths(t *testing.T) {
	for _, path := range results(t) {
		s := readSummary(t, path)
		for _, width := range []int{60, 80, 100, 132, 200} {
			r := ResultOf(s, Place{Dir: "allocscope-x", Sudo: true})
			mustBeOfWords(t, path, r, width)
		}
	}
}

// mustBeOfWords checks that a result has no line wider than so many columns, and no part of a word
// that is not in it as a whole.
func mustBeOfWords(t *testing.T, path string, r Result, width int) {
	t.Helper()
	known := map[string]bool{cut: true, `\`: true}
	for _, text := range append([]string{r.Name, r.Subject}, blockTexts(r)...) {
		for _, word := range strings.Fields(text) {
			known[word] = true
		}
	}

	lines := r.Lines(width, nil)
	first := strings.Join(strings.Fields(strings.Join(lines[:3], " ")), " ")
	_, pid, _ := strings.Cut(r.Subject, "(PID ")
	pid = pid[:strings.IndexAny(pid, ",)")]
	if !strings.Contains(first, "(PID "+pid) {
		t.Errorf("%s in %d columns lacks %s: %s", path, width, pid, lines[:2])
	}
	for _, line := range lines {
		isCommand := width >= ResultWidth && strings.Contains(line, binary)
		words := strings.Fields(line)
		if n := ansi.StringWidth(line); n > width && len(words) > 1 && !isCommand {
			t.Errorf("%s: %d of %d columns: %s", path, n, width, line)
		}
		for _, word := range words {
			isNumber := strings.HasSuffix(word, ".") && len(word) == 2
			head, tail, _ := strings.Cut(word, cut)
			isShort := func(whole string) bool { // its own middle is cut
				return strings.HasPrefix(whole, head) && strings.HasSuffix(whole, tail)
			}
			isKnown := known[word] || known[word+";"] || strings.Contains(word, cut) &&
				slices.ContainsFunc(slices.Collect(maps.Keys(known)), isShort)
			if !isKnown && !isNumber {
				t.Errorf("%s in %d columns breaks %q: %s", path, width, word, line)
			}
		}
	}
}

// blockTexts are the labels and the entries of a result, with the semicolons that join them.
func blockTexts(r Result) (texts []string) {
	for _, b := range r.Blocks {
		texts = append(texts, b.Label)
		for _, line := range b.Lines {
			texts = append(texts, line, line+";")
		}
	}
	return texts
}

func TestWordsCut(t *testing.T) {
	for width, want := range map[int]string{
		30: "one two three four five six", 26: "one two three ... five six",
		14: "one ... six", 8: "one...ix",
	} {
		mustBe(t, wordsCut("one two three four five six", width), want, width)
	}
}

// Neither a command nor a PID is ever cut.
func TestCommandsAreWhole(t *testing.T) {
	long := strings.Repeat("/a-long-folder", 12) + "/train.py"
	s := readSummary(t, "testdata/results/two.json")
	s.Related = []summary.Related{{PID: 4194303, Command: "python3 " + long, GrowthBytes: 1 << 30}}
	place := Place{Dir: "allocscope-" + strings.Repeat("x", 90), Sudo: true}

	text := strings.Join(ResultOf(s, place).Lines(ResultWidth, nil), "\n")
	for _, want := range []string{
		"PID 4194303", "sudo allocscope trace 4194303",
		"sudo allocscope trace 17030 --continue " + place.Dir + " --duration 26m",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}

	s.Process.PID, s.Asked = 4194302, 4194301
	s.Gaps = []summary.Gap{{FromS: 1, ToS: 3600}}
	s.Process.Arguments = []string{"python3", long, "--data", "x"}
	title := strings.Join(ResultOf(s, place).Lines(ResultWidth, nil)[:2], "\n")
	for _, want := range []string{"(PID 4194302, started by 4194301)", "traced 5m", "a gap of", "python3"} {
		if !strings.Contains(title, want) {
			t.Errorf("lacks %q:\n%s", want, title)
		}
	}
}

// The next run of a process that has ended has its own command line, or none.
func TestNextRun(t *testing.T) {
	s := readSummary(t, "testdata/results/short.json")
	s.Ended = summary.EndedExit
	s.Process.Arguments = []string{"python3", "a b.py", "--lr", "0.1"}
	next := func() string { return ResultOf(s, Place{Dir: "dir", Sudo: true}).Block(LabelDoNext)[0] }
	const want = "trace its next run: allocscope run --duration 11m -- python3 'a b.py' --lr 0.1"
	mustBe(t, next(), want)

	const words = "trace its next run: start it by allocscope run, for 11m or longer"
	s.Process.Arguments = append(s.Process.Arguments, strings.Repeat("x", 200))
	mustBe(t, next(), words, "a long command")
	s.Process.Arguments, s.Asked = []string{"python3", "rank.py"}, 1
	mustBe(t, next(), words, "not what was typed")
}

// Each code of the evidence has its words.
func TestFacts(t *testing.T) {
	for _, code := range conclude.FactCodes {
		f := conclude.Fact{
			Code: code, Share: 0.5, Ratio: 0.5, PerMinute: 5, Count: 2, Needed: 3, Length: 60,
		}
		text := factTexts[code]
		if text == nil || text(f, summary.Verdict{Axis: summary.AxisSeconds}) == "" {
			t.Errorf("%s has no words", code)
		}
	}
	for fact, want := range map[conclude.Fact]string{
		{Code: conclude.FactKeeper, PerMinute: 461}:              "what keeps it gains 461 entries/min",
		{Code: conclude.FactKeeper, PerMinute: 461, Length: 30}:  "what keeps it gains 461 entries/min",
		{Code: conclude.FactKeeper, PerMinute: 461, Length: 5.3}: "what keeps it gained 41 entries in 5.3s",
		{Code: conclude.FactGains, PerMinute: 461, Length: 5.3}:  "a container gained 41 entries in 5.3s",
	} {
		if got := factTexts[fact.Code](fact, summary.Verdict{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if len(factTexts) != len(conclude.FactCodes) {
		t.Errorf("%d facts have words, of %d", len(factTexts), len(conclude.FactCodes))
	}
	for _, code := range conclude.ExclusionCodes {
		if excludedTexts[code] == "" {
			t.Errorf("%s has no words", code)
		}
	}
	for _, code := range summary.LimitationCodes {
		if limitationText(summary.Limitation{
			Code: code, Share: 0.5, Count: 2, Runtime: growth.RuntimeRuby,
		}, 1) == "" {
			t.Errorf("%s has no words", code)
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
		mustBe(t, OutlierLine(o), c.want)
	}
	two := &summary.Outlier{Rank: 12, Ranks: 16, Others: 14, Ratio: &six, Site: conclude.SiteOnlyThere}
	want := "rank 12 (and 1 more) grows 6.0x as fast as the other 14, by a call site where they do not"
	if got := OutlierLine(two); got != want || len(got) > ResultWidth-labelWidth {
		t.Errorf("two: %q, want %q", got, want)
	}
	mustBe(t, OutlierLine(nil), "", "no outlier")

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
	docs, err := os.ReadFile("../../docs/causes.md")
	tracertest.NoError(t, err)
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
		title := r.Lines(ResultWidth, nil)[0]
		if width := ansi.StringWidth(title); width > ResultWidth || !strings.HasSuffix(title, rest) ||
			!strings.HasPrefix(title, r.Name+"   "+command[:9]) {
			t.Errorf("%d: %q", width, title)
		}
	}

	r := Result{Name: "STABLE", Subject: strings.Repeat("series ", 30)}
	if title := r.Lines(ResultWidth, nil)[0]; ansi.StringWidth(title) != ResultWidth {
		t.Errorf("%q", title)
	}
}

// A line that calls C by ctypes lacks the free, not ctypes.
func TestExtensionStep(t *testing.T) {
	s := &summary.Summary{Suspects: []summary.Suspect{{
		Function: "encode (/home/me/d.py:6)", Path: []string{"encode (/home/me/d.py:6)"},
	}}}
	for library, want := range map[string]string{
		"_ctypes.cpython-311-x86_64-linux-gnu.so": "find the free that d.py:6 lacks for memory of C, " +
			"or what keeps it",
		"_imaging.cpython-311-x86_64-linux-gnu.so": "find what keeps what that line allocates, or the " +
			"free that _imaging lacks",
	} {
		mustBe(t, extensionStep(s, library), want, library)
	}
}
