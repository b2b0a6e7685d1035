package report

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

// notShown are texts with another form in the page: a class is a colour, a code has its sentence,
// the path of a suspect is in the stacks, the path of a keeper is code, IDs of stacks are their
// names, losses and gaps of sources are in the warnings, evidence is in its sentences, advice explains a diagnosis, and memory in a spike has no
// trend.
var notShown = regexp.MustCompile(`Schema|Class|Evidence|Axis|Why|Text\.|SpikeMemory\..*(Path|Trend|UndecidedReason|Untrackable)|WhyCode|Suspects\[\d+\]\.(Path|Trend)|Accumulating\[\d+\]\.UndecidedReason|StackID|Keepers\[\d+\]\.(Type|Reason|Unproven|Runtime|Paths\[\d+\]\.(Root|Links))|Groups\[\d+\]\.Verdict|Outlier\.Site|Breakdown\[\d+\]\.Name|Losses|Sources\[\d+\]\.(SourceFailure|Errno)|OverheadChange\.(Source|Error)|Process\.Command|Residents\[\d+\]\.Role|Overhead\..*Mode|Advice\[\d+\]\.About|GPUMemory\[\d+\]\.(Diagnosis|Judged|Command|GPUUnknown.(NVIDIA|Detail))`)

func TestPage(t *testing.T) {
	t.Run("all texts of the summary", func(t *testing.T) {
		trace := gpuTrace(t)
		texts := make(map[string]string)
		onGPU := &trace.Summary.GPUMemory[0]
		onGPU.Accumulating[0].Module = "/lib/x.so"
		onGPU.Breakdown[0].GPU = "1" // a single GPU has no number
		fillTexts(reflect.ValueOf(&trace.Summary), "", func(path string) string {
			if strings.HasPrefix(path, ".Breakdown") {
				return "kind" // rows of a kind are summed
			}
			texts[path] = "Text<" + path + ">"
			return texts[path]
		})
		trace.Summary.Processes[1].Rank = nil
		shown := text(show(t, trace).root)
		for path, want := range texts {
			if !notShown.MatchString(path) && !strings.Contains(shown, want) {
				t.Errorf("%s is not shown", path)
			}
		}
		if len(texts) < 50 {
			t.Errorf("%d texts", len(texts))
		}
	})

	t.Run("order of sections", func(t *testing.T) {
		page := show(t, leakingTrace(t))
		var ids []string
		each(page.root, "section", func(n *html.Node) { ids = append(ids, attribute(n, "id")) })
		const want = "verdict timeline breakdown accumulating spikes objects flame processes losses reproduce"
		if got := strings.Join(ids, " "); got != want || page.links() != want {
			t.Errorf("sections %q, links %q", got, page.links())
		}
		for id, wants := range map[string][]string{
			"verdict": {
				"98% of the growth", "LEAK", "in 28-32 min 1.76 GiB of headroom in the cgroup",
				"600/min, +102 KiB a step", "resize (Image.py:2192) < augment (train.py:47)",
				"kept by train.cache (dict", "PID 50: 40 MiB of heap",
			},
			"timeline": {
				"RSS over 5 min: 80.0 MiB at first, 380 MiB at last, at most 380 MiB after 5 min.",
				"warm-up", "+300 MiB/min", "mark: epoch 1", "61.5 s", "100.0 s110.0 sspike",
				"20.0 sprobes: heap probes would take",
			},
			"breakdown": {
				"PID 42: +240 MiB", "RSS at the baseline, after 60.0 s: 380 MiB",
				"heap, free but resident, 8 arenas, 9 threads", "Its tree, with 1 other process",
			},
			"accumulating": {
				"What accumulates, from bursts", "pil",
				"mmap memory_get_block (_imaging.so) < resize (Image.py:2192)", "57.00",
				"55.00-59.00", "97%", "230 MiB", "1956", "accumulating", "61 s",
			},
			"spikes": {
				"4 spikes of RSS", "RSS was 65.0 MiB above the level at 105.0 s.",
				"64.0 MiB eval.py validate (eval.py:31) < main (train.py:60)",
				"mmap validate (eval.py:31)", "98%",
			},
			"objects": {
				"50% of the memory of small objects was read", "1 pool of small objects that changed",
				"Types that grow, Python 3.11", "PIL.Image.Image+461/min455-4671001,944+3.00 MiB",
				"builtins.module20,000 ± 1209.00 MiB",
				"float32 [64, 3, 224, 224] cpuresize (Image.py:2192) < augment (train.py:47)1224+3440 MiB+36.0 MiB",
				"6 of 8: train.cache (dict", "objects of type dict (3 samples, at 0.0 s)",
			},
			"flame":     {"1 stack that has shrunk is left out: 8.00 KiB less than at the baseline."},
			"processes": {"rank 3", "0.0 s to 300.0 s", "4 DataLoader workers: 90.0 MiB RSS each, growing"},
			"losses":    {"3 unknown stacks", "permission denied", "one sample every 512 KiB"},
			"reproduce": {
				"allocscope trace --pid 42 -o 'my folder'", "amd64", "limit 3%",
				"2026-03-01 12:00:00 UTC", "go tool pprof -http=: growth.pb.gz",
			},
		} {
			page.mustSay(t, id, wants...)
		}
	})

	t.Run("the worst verdict is the title", func(t *testing.T) {
		trace := gpuTrace(t)
		trace.Summary.Class = verdict.ClassPlateau
		page := show(t, trace)
		if class := attribute(page.byID(t, "verdict"), "class"); class != "verdict verdict-leak" {
			t.Errorf("RSS is flat and GPU memory leaks: the class is %s", class)
		}
		page.mustSay(t, "verdict-title", "GPU LEAK")
	})

	t.Run("unknown values are left out", func(t *testing.T) {
		page := show(t, &Trace{Missing: []string{"timeline.csv is not there"}})
		shown := text(page.byID(t, "main"))
		if page.data.Timeline != nil || page.data.Flame != nil || strings.Contains(shown, "NaN") {
			t.Errorf("shows %s", shown)
		}
		page.mustSay(t, "main", "NOT ENOUGH DATA", "Nothing that was traced accumulated",
			"timeline.csv is not there")
		each(page.root, "div", func(n *html.Node) {
			if attribute(n, "class") == "chart" {
				t.Errorf("there is a chart %s", attribute(n, "id"))
			}
		})
	})

	t.Run("no bursts", func(t *testing.T) {
		trace := leakingTrace(t)
		trace.Summary.Overhead = &summary.Overhead{Mode: growth.HeapFull}
		shown := text(show(t, trace).root)
		for _, not := range []string{"from bursts", "of a core", "probes: ", "is known from"} {
			if strings.Contains(shown, not) {
				t.Errorf("says %q", not)
			}
		}
		if !strings.Contains(shown, "no limit") {
			t.Error("does not say that there was no limit")
		}
	})

	t.Run("stacks", func(t *testing.T) {
		page := show(t, leakingTrace(t))
		var classes, frames []string
		each(page.byID(t, "accumulating"), "li", func(n *html.Node) {
			classes, frames = append(classes, attribute(n, "class")), append(frames, text(n))
		})
		if got := strings.Join(classes, " "); got != "native python python root" {
			t.Errorf("frames are %s", got)
		}
		if !slices.Equal(frames, leakingSummary().Accumulating[0].Stack) {
			t.Errorf("frames are %q", frames)
		}
	})

	t.Run("groups of unknown rate", func(t *testing.T) {
		s := summary.Summary{Groups: []summary.Group{
			{Role: growth.RoleOther, Processes: 2, Verdict: verdict.ClassLeak},
		}}
		want := []string{"2 other processes, LEAKING"}
		if got := viewOf(&s, "trace", pageData{}).Groups; !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

// Bars begin where the one before ends, from the bytes at the baseline to the bytes at the end, and
// are as long as their change.
func TestBreakdown(t *testing.T) {
	for name, start := range map[string]int64{"from zero": 0, "cut": 100_000 * mib} {
		s := leakingSummary()
		for i := range s.Breakdown {
			if s.Breakdown[i].Kind == growth.KindBeforeTracing {
				s.Breakdown[i].StartBytes += start
				s.Breakdown[i].EndBytes += start
			}
		}
		for _, breakdown := range breakdownsOf(&s) {
			name := name + ", " + breakdown.Title
			var bars []bar
			unit := 0.0
			for _, line := range breakdown.Lines {
				bars = append(bars, line.Bar)
				if line.Label == "heap, allocated and not freed" {
					unit = line.Bar.Width / 300
				}
			}
			mustFall(t, name, bars)
			gained := (bars[len(bars)-1].Width - bars[0].Width) / unit
			if gained < 239 || gained > 241 {
				t.Errorf("%s: the bars gain %g MiB, want 240", name, gained)
			}
		}
	}

	// An interval that reaches beyond all bars is seen whole.
	t.Run("scale includes intervals", func(t *testing.T) {
		s := leakingSummary()
		s.Breakdown[0].ErrorBytes = 1000 * mib
		line := breakdownsOf(&s)[0].Lines[1]
		if end := line.Bar.From + line.Bar.Width; end > 500 ||
			!strings.HasPrefix(line.Bar.Whisker, "M0 10H1000") {
			t.Errorf("%+v", line.Bar)
		}
	})

	t.Run("whisker", func(t *testing.T) {
		scale := barScale{0, 1000}
		if got, want := scale.whisker(100, 2000), "M100 10H1000M100 5V15M1000 5V15"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// mustFall wants bars that begin where the one before ends, the last one from 0 to there.
func mustFall(t *testing.T, name string, bars []bar) {
	t.Helper()
	at := bars[0].From + bars[0].Width
	for i, b := range bars[1:] {
		from, to := b.From, b.From+b.Width
		if b.Class == "shrunk" {
			from, to = to, from
		}
		if i == len(bars)-2 {
			from = to
		}
		if from < at-0.2 || from > at+0.2 {
			t.Errorf("%s: bar %d is at %g, and the one before ends at %g", name, i+1, from, at)
		}
		at = to
	}
}

func TestFacts(t *testing.T) {
	s := leakingSummary()
	s.Class = verdict.ClassGrowing
	want := fact{"Out of memory", "in 30 min", "at this rate; 1.76 GiB of headroom in the cgroup"}
	if got := factsOf(&s)[1]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	s.ToLimit, s.EndedBeforeLimit = nil, true
	for _, f := range factsOf(&s) {
		if f.Name == want.Name {
			t.Errorf("the process has ended, and yet %+v", f)
		}
	}
}

func TestSpark(t *testing.T) {
	for _, test := range []struct {
		times   []float64
		history []int64
		want    string
	}{
		{[]float64{0, 75, 100}, []int64{0, 5, 10}, "M0.0 23.0L75.0 12.0L100.0 1.0"},
		{[]float64{10, 20}, []int64{-5, 0}, "M0.0 23.0L100.0 23.0"},
		{[]float64{0, 1}, []int64{7}, ""},
		{[]float64{5, 5}, []int64{1, 2}, ""},
		{nil, []int64{1, 2}, ""},
		{[]float64{}, nil, ""},
	} {
		if got := sparkOf(test.times, test.history); got != test.want {
			t.Errorf("%v over %v is %q, want %q", test.history, test.times, got, test.want)
		}
	}
	times, history := make([]float64, 14_400), make([]int64, 14_400)
	for i := range times {
		times[i] = float64(i)
	}
	if n := strings.Count(sparkOf(times, history), "L"); n != maxSparkPoints-1 {
		t.Errorf("%d points", n+1)
	}
}

func TestRowsOf(t *testing.T) {
	s := leakingSummary()
	a := &s.Accumulating[0]
	a.RateHigh, a.Objects = a.RateLow, 0
	if row := rowsOf(s.Accumulating, s.SnapshotsS)[0]; row.Interval != "exact" ||
		row.Objects != "-" {
		t.Errorf("%s, %s objects", row.Interval, row.Objects)
	}
}
