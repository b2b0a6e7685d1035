package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestPage(t *testing.T) {
	results := tracertest.Must(readResults(resultsFile))(t)
	page := tracertest.Must(os.ReadFile(filepath.Join("..", "..", pageFile)))(t)
	if string(page) != pageOf(results) {
		t.Errorf("%s does not match %s: run go generate ./test/truth", pageFile, resultsFile)
	}
	support := tracertest.Must(os.ReadFile(filepath.Join("..", "..", newestFile)))(t)
	if string(support) != withNewest(string(support), results) {
		t.Errorf("%s does not match %s: run go generate ./test/truth", newestFile, resultsFile)
	}

	for _, r := range results.Rows {
		if orderOf(r) == len(parts) {
			t.Errorf("%s is of no part: %q", r.Name, r.Part)
		}
	}
}

// Each program of testdata/truth is in the table, and has a line that is marked.
func TestLeaks(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "truth", "*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d programs, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".py")
		text := tracertest.Must(os.ReadFile(file))(t)
		isListed := slices.ContainsFunc(leaks, func(l leak) bool { return l.name == name })
		isMarked := strings.Count(string(text), "# NAMED\n") == 1
		if name != "paced" && (!isListed || !isMarked) {
			t.Errorf("%s is in the table: %t; it has one line marked NAMED: %t", name, isListed,
				isMarked)
		}
	}
}

func TestJudgeLeak(t *testing.T) {
	said := answer{
		class: verdict.ClassLeak, reason: lost, rate: 60 << 20, lines: "WHERE a.py:3 leaking()",
	}
	with := func(change func(a *answer)) answer {
		a := said
		change(&a)
		return a
	}
	growing := with(func(a *answer) { a.class, a.reason = verdict.ClassGrowing, "" })

	for name, c := range map[string]struct {
		truth, keptBy string
		said          answer
		want          Outcome
	}{
		"proven":              {"lost", "", said, Right},
		"proven, and is kept": {"kept by a.b", "a.b", said, Wrong},
		"only growing":        {"lost", "", growing, Undecided},
		"without its line":    {"lost", "", with(func(a *answer) { a.lines = "" }), Undecided},
		"half of the rate":    {"lost", "", with(func(a *answer) { a.rate /= 2 }), Wrong},
		"stable":              {"lost", "", with(func(a *answer) { a.class = verdict.ClassPlateau }), Wrong},
		"garbage":             {"lost", "", with(func(a *answer) { a.garbage = true }), Wrong},
		"a keeper":            {"lost", "", with(func(a *answer) { a.keptBy = "a.b" }), Wrong},
		"its keeper": {"kept by a.b", "a.b", with(func(a *answer) {
			a.class, a.reason, a.keptBy = verdict.ClassSuspected, "", "a.b"
		}), Right},
		"flat, proven":  {"flat", "", said, Wrong},
		"flat, growing": {"flat", "", growing, Undecided},
		"flat, stable": {"flat", "", with(func(a *answer) {
			a.class, a.reason = verdict.ClassPlateau, ""
		}), Right},
	} {
		t.Run(name, func(t *testing.T) {
			r := Row{Truth: c.truth}
			if r.judgeLeak(c.said, c.keptBy, 60<<20, "a.py:3"); r.Outcome != c.want {
				t.Errorf("%s (%s), want %s", r.Outcome, r.Said, c.want)
			}
		})
	}
}

func TestJudgeBlocks(t *testing.T) {
	native := notKnown + " (native)"
	for name, c := range map[string]struct {
		said    []string
		holders []string
		want    Outcome
		false   bool
	}{
		"all":              {[]string{"p", nobody}, []string{"p", nobody}, Right, false},
		"another variable": {[]string{"p"}, []string{"q"}, Wrong, false},
		"a false proof":    {[]string{nobody, nobody}, []string{"p", nobody}, Wrong, true},
		"one of two":       {[]string{"p", native}, []string{"p", "p"}, Undecided, false},
		"dead word":        {[]string{onStack}, []string{nobody}, Undecided, false},
		"variable of lost": {[]string{"p"}, []string{nobody}, Wrong, false},
		"thread-local":     {[]string{onStack}, []string{inTLS}, Right, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Row{Part: "reachability"}
			r.judgeBlocks(c.said, c.holders)
			if r.Outcome != c.want {
				t.Errorf("%s, want %s", r.Outcome, c.want)
			}
			if n := tallyOf([]Row{r}, r.Part).falseProofs; (n > 0) != c.false {
				t.Errorf("%d false proofs", n)
			}
		})
	}
}

func TestJudgeRows(t *testing.T) {
	one := stressor{kinds: ofMmap, asked: 64 << 20}
	truth := map[class]int64{private: 66 << 20, files: 2 << 20}
	rows := func(mmap, before, file int64) *summary.Summary {
		return &summary.Summary{Breakdown: []summary.BreakdownRow{
			{Process: 7, Kind: growth.KindMmap, EndBytes: mmap << 20},
			{Process: 7, Kind: growth.KindBeforeTracing, EndBytes: before << 20},
			{Process: 7, Kind: growth.KindFile, EndBytes: file << 20},
			{Process: 8, Kind: growth.KindMmap, EndBytes: 1 << 30},
		}}
	}

	for name, c := range map[string]struct {
		said *summary.Summary
		want Outcome
	}{
		"in its row":      {rows(64, 2, 2), Right},
		"before tracing":  {rows(0, 66, 2), Undecided},
		"in another row":  {rows(2, 2, 64), Wrong},
		"not all of RSS":  {rows(64, 0, 0), Wrong},
		"partly before":   {rows(30, 34, 4), Undecided},
		"more than it is": {rows(80, 2, 2), Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			var r Row
			if r.judgeRows(one, 7, c.said, truth); r.Outcome != c.want {
				t.Errorf("%s (%s), want %s", r.Outcome, r.Said, c.want)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	proofs := func(all, proven int) (rows []Row) {
		for i := range all {
			rows = append(rows, Row{
				Part: "leaks", Outcome: Right, Lost: 1, Proven: min(1, max(0, proven-i)),
			})
		}
		return rows
	}
	for name, c := range map[string]struct {
		rows  []Row
		holds bool
	}{
		"nothing was measured":   {nil, true},
		"nine of ten are proven": {proofs(10, 9), true},
		"eight of ten are":       {proofs(10, 8), false},
		"a false proof":          {[]Row{{Part: "leaks", Outcome: Undecided, False: 1}}, false},
		"a block is undecided":   {[]Row{{Part: "reachability", Outcome: Undecided, Blocks: 1}}, false},
		"a false alarm":          {[]Row{{Part: "false alarms", Outcome: Wrong}}, false},
		"a wrong row":            {[]Row{{Part: "kinds", Outcome: Wrong}}, false},
		"a program is missing":   {[]Row{{Part: "kinds", Outcome: NotRun}}, false},
	} {
		if err := boundsOf(c.rows, false); (err == nil) != c.holds {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := boundsOf(proofs(10, 0), true); err != nil {
		t.Errorf("a slice is too short for proofs: %v", err)
	}
}

// Each program of testdata/truth/jobs is in the table, or a part of one, and the ones that grow
// have a line that is marked.
func TestJobs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "truth", "jobs", "*"))
	if err != nil || len(jobs) != 30 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	parts := []string{"pace.py", "model.py", "extension.c"}
	for _, file := range files {
		name := filepath.Base(file)
		isListed := slices.ContainsFunc(jobs, func(j job) bool { return j.name == name })
		if !isListed && !slices.Contains(parts, name) && name != "__pycache__" {
			t.Errorf("%s is not in the table", name)
		}
	}

	c := campaign{testdata: filepath.Join("..", "..", "testdata")}
	for _, j := range jobs {
		if _, err := c.named(j); j.grows && err != nil {
			t.Error(err)
		}
	}
}

func TestJudgeJob(t *testing.T) {
	kept := job{right: leaking, grows: true, keptBy: "a.b"}
	flat := job{right: steady}
	said := answer{class: verdict.ClassLeak, keptBy: "a.b", rate: 60, lines: "a.py:3"}
	with := func(change func(a *answer)) answer {
		a := said
		change(&a)
		return a
	}
	of := func(c verdict.Class) answer { return with(func(a *answer) { a.class = c }) }

	for name, c := range map[string]struct {
		of   job
		said answer
		want Outcome
	}{
		"a leak":               {kept, said, Right},
		"only suspected":       {kept, of(verdict.ClassSuspected), Undecided},
		"growing":              {kept, of(verdict.ClassGrowing), Undecided},
		"stable":               {kept, of(verdict.ClassPlateau), Wrong},
		"fills up":             {kept, of(verdict.ClassFillsUp), Wrong},
		"another keeper":       {kept, with(func(a *answer) { a.keptBy = "a.c" }), Wrong},
		"half of the rate":     {kept, with(func(a *answer) { a.rate = 30 }), Wrong},
		"another line":         {kept, with(func(a *answer) { a.lines = "" }), Undecided},
		"lost, and is kept":    {kept, with(func(a *answer) { a.reason = lost }), Wrong},
		"flat":                 {flat, of(verdict.ClassPlateau), Right},
		"flat, not enough":     {flat, of(verdict.ClassTooShort), Undecided},
		"flat, suspected":      {flat, of(verdict.ClassSuspected), Wrong},
		"flat, called a leak":  {flat, said, Wrong},
		"flat, growing":        {flat, of(verdict.ClassGrowing), Undecided},
		"a fill, called right": {job{right: filling}, of(verdict.ClassFillsUp), Right},
	} {
		var r Row
		place := ""
		if c.of.grows {
			place = "a.py:3"
		}
		r.judgeJob(c.of, c.said, 60, place)
		if r.Outcome != c.want {
			t.Errorf("%s: %s, want %s", name, r.Outcome, c.want)
		}
	}
}

// Each program of testdata/truth/newest is in the table, and has a line that is marked.
func TestNewest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "truth", "newest", "*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d programs, %v", len(files), err)
	}

	c := campaign{testdata: filepath.Join("..", "..", "testdata")}
	for _, file := range files {
		of := func(j newestJob) bool { return j.folder == "newest" && j.name == filepath.Base(file) }
		if !slices.ContainsFunc(newestJobs(), of) {
			t.Errorf("%s is not in the table", file)
		}
	}
	for _, j := range newestJobs() {
		if _, err := c.namedIn(j.folder, j.job); err != nil {
			t.Error(err)
		}
	}
}

func TestWithNewest(t *testing.T) {
	results := Results{Rows: []Row{{Part: newest, Name: "a"}}}
	section := newestSection(results)
	for page, want := range map[string]string{
		"# A\n\n":                               "# A\n\n" + section,
		"# A\n\n" + newestHeading + "old\n":     "# A\n\n" + section,
		newestHeading + "old\n\n## B\n\nkept\n": section + "\n## B\n\nkept\n",
	} {
		if got := withNewest(page, results); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestUpstreamVersion(t *testing.T) {
	for version, want := range map[string]string{
		"2.14.1+dfsg-1": "2.14.1", "1:2.4.6+ds-5+b1": "2.4.6", "5.3.1-2": "5.3.1", "": "",
	} {
		if got := upstreamVersion(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}
