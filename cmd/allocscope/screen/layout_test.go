package screen

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestRender(t *testing.T) {
	t.Run("all facts", testAllFacts)
	t.Run("overhead", testOverhead)
	t.Run("keeper", testKeeper)
	t.Run("every size", testEverySize)
	t.Run("nothing known", testNothingKnown)
	t.Run("hostile texts", testHostile)
	t.Run("order and scroll", testOrder)
	t.Run("contrast", testContrast)
}

// leaking is a state with something in every part of the screen.
func leaking() *State {
	s := &State{
		Command: "python3 train.py", PID: 4242, Processes: 5, Traced: 2, Elapsed: 200 * time.Second,
		Duration: 5 * time.Minute,
		RSS:      1 << 30, Headroom: 8 << 30, Limit: "cgroup", JudgedAt: 190 * time.Second,
		Since: 40 * time.Second, Warm: true,
		Suspect: "most by pil: resize (Image.py:2192)", Steps: 40, Events: 12345, CPU: 0.034,
		OwnRSS: 85 << 20, Drops: 7, DropReason: "stacks not kept",
		Marks: []summary.Mark{{AtS: 50, Text: "epoch 1"}, {AtS: 100, Text: "epoch 2"}}, MarkCount: 2,
		Resident: summary.Resident{HeapTraced: true},
	}

	for second := range 200 {
		s.Curve = s.Curve.With(time.Duration(second)*time.Second, int64(100+second*4)<<20)
	}

	s.Verdict = &summary.Verdict{
		Class: verdict.ClassLeak, WhyCode: "steady growth after warm-up",
		Rate: new(240.0 * (1 << 20)), RateLow: new(238.0 * (1 << 20)),
		RateHigh: new(242.0 * (1 << 20)), ToLimit: new(2000.0),
		ToLimitLow: new(1900.0), ToLimitHigh: new(2100.0),
		Phases: []summary.VerdictPhase{
			{Kind: verdict.PhaseWarmup, From: new(0.0), To: new(40.0)},
			{Kind: verdict.PhaseGrowth, From: new(40.0), To: new(190.0)},
		},
	}

	for i := range 9 {
		s.Stacks = append(s.Stacks, Stack{
			Component: "pil", BytesPerMin: new(int64(100-10*i) << 20), Bytes: int64(10+i) << 20,
			Objects: float64(1000 * (i%3 + 1)),
			Where: []string{
				fmt.Sprintf("grab%d (_imaging.so) < Allocate < ... < resize%d (Image.py:2192) < augment (train.py:47) < main (train.py:99)", i, i),
				fmt.Sprintf("resize%d (Image.py:2192) < augment (train.py:47)", i),
				fmt.Sprintf("resize%d:2192 < augment:47", i),
			},
		})
	}

	s.Breakdown = words.BreakdownOf([]summary.BreakdownRow{
		{Kind: growth.KindHeap, EndBytes: 900 << 20, DeltaBytes: 600 << 20, ErrorBytes: 9 << 20},
		{Kind: growth.KindRetained, EndBytes: 50 << 20, DeltaBytes: -20 << 20},
		{Kind: growth.KindFile, EndBytes: 70 << 20},
		{Kind: growth.KindStack, EndBytes: 4 << 20, DeltaBytes: 1 << 20},
		{Kind: growth.KindUnexplained, EndBytes: 1 << 20, DeltaBytes: 1 << 10},
	}, 0)

	return s
}

var sizes = []UIState{{Width: 80, Height: 24}, {Width: 200, Height: 50}, {Width: 40, Height: 10}}

// mustFit checks for as many lines as the terminal has, none wider than it.
func mustFit(t *testing.T, text string, ui UIState) {
	t.Helper()
	lines := strings.Split(text, "\n")
	if len(lines) > ui.Height {
		t.Errorf("%d×%d: %d lines", ui.Width, ui.Height, len(lines))
	}

	for i, line := range lines {
		if width := ansi.StringWidth(line); width > ui.Width {
			t.Errorf("%d×%d: line %d takes %d cells: %q", ui.Width, ui.Height, i+1, width, line)
		}
	}
}

func mustShow(t *testing.T, text string, wanted ...string) {
	t.Helper()
	plain := ansi.Strip(text)
	for _, want := range wanted {
		if !strings.Contains(plain, want) {
			t.Errorf("does not show %q:\n%s", want, plain)
		}
	}
}

func testAllFacts(t *testing.T) {
	for _, ui := range sizes[:2] {
		ui.Log = []string{"warn: source step is not attached"}
		text := Render(leaking(), ui)
		mustFit(t, text, ui)

		mustShow(t, text, "python3 train.py", "PID 4242", "3m20s of 5m", "RSS 1.00 GiB",
			"min 100 MiB, max 896 MiB", "warm-up", "growth", "▲",
			"So far: LEAK: +240.0 MiB/min",
			"Stacks by rate, since the end of the warm-up at 40s", "▾MiB/min", "100.00", "10.0 MiB",
			"pil", "resize0 (Image.py:2192)", "resize4 (Image.py:2192)", "+581 MiB", "+600 MiB",
			"900 MiB", "unexplained", "40 steps/s", "12.3 k events/s", "drops 7",
			"5 processes (2 traced)", "allocscope "+units.Percent(0.034)+" CPU, 85.0 MiB",
			"2 marks", "1m40s epoch 2", "source step is not attached", "q quit", "m mark",
			"s sort: rate", "? help", "█")
	}
	mustShow(t, Render(leaking(), sizes[2]), "3m20s of 5m", "RSS 1.00 GiB", "So far: LEAK", "100.00",
		"12.3 k events/s", "q quit")
	mustShow(t, Render(leaking(), sizes[1]), "most by pil: resize (Image.py:2192)",
		"8.00 GiB of headroom in the cgroup", "stacks not kept", "resize8", "objects", "1000")
}

func testKeeper(t *testing.T) {
	state := leaking()
	state.Objects, state.Keeper = grownObjects("PIL.Image.Image"), keptBy("cache")
	for _, ui := range sizes[:2] {
		mustFit(t, Render(state, ui), ui)
	}
	text := Render(state, sizes[1])
	mustShow(t, text, "kept by train.cache (dict, 10,512 entries, +461/min) -> Image",
		"objects: PIL.Image.Image +461/min", "most by pil: resize (Image.py:2192)")

	state.Suspect = "" // of another process than the search was about
	if text := Render(state, sizes[1]); strings.Contains(text, "kept by") {
		t.Errorf("a keeper of nothing:\n%s", text)
	}
}

func grownObjects(typeName string) *summary.Objects {
	return &summary.Objects{Types: []summary.TypeGrowth{{Type: typeName, PerMin: 461}}}
}

func keptBy(variable string) *summary.Keeper {
	return &summary.Keeper{Samples: 8, Paths: []keeper.Path{{
		Samples: 8, Share: 1,
		Root: keeper.Root{Kind: keeper.RootGlobal, Module: "train", Name: variable},
		Links: []keeper.Link{
			{How: keeper.HowVariable, Type: "dict", Entries: 10512, PerMinute: 461},
			{How: keeper.HowValue, Type: "PIL.Image.Image", Entries: keeper.NoContainer},
		},
	}}}
}

// The cost of tracing is in the header as far as nothing else has to be cut for it, and else among
// the facts; never twice.
func testOverhead(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		width   int
		first   bool
	}{
		"wide": {"python3 train.py", 200, true}, "usual": {"python3 train.py", 80, false},
		"usual, with a short name": {"x", 110, true},
	} {
		state := leaking()
		share := 0.019
		state.Command = c.command
		state.Overhead = &summary.Overhead{Slowdown: &share, Mode: growth.HeapBursts, Bursts: 3}
		text := ansi.Strip(Render(state, UIState{Width: c.width, Height: 50}))
		mustShow(t, text, c.command+"  PID 4242", words.OverheadShort(state.Overhead),
			"3m20s of 5m", "at 40s, sampled in bursts")
		header, _, _ := strings.Cut(text, "\n")
		if strings.Contains(header, "slows the job") != c.first ||
			strings.Count(text, "slows the job") != 1 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

func testEverySize(t *testing.T) {
	for width := 0; width < 220; width += 7 {
		for height := 0; height < 70; height += 3 {
			for _, state := range []*State{leaking(), onGPU(), {RSS: -1, Steps: -1, GPU: &GPU{}}} {
				ui := UIState{
					Width: width, Height: height, Scroll: 1 << 30, Log: []string{"x"},
					Writing: height%2 == 0, Help: height%7 == 0,
				}
				text := Render(state, ui)
				if height > 0 {
					mustFit(t, text, ui)
				}
			}
		}
	}
}

func testNothingKnown(t *testing.T) {
	text := Render(&State{
		Command: "x", PID: 1, Elapsed: time.Second, RSS: -1, Steps: -1,
		JudgedAt: 10 * time.Second,
	}, sizes[0])
	mustShow(t, text, "RSS unknown", "the first check is at 10s",
		"nothing that was allocated since tracing started", "not scanned yet")
}

// hostile are texts that break a screen which takes them as they are.
var hostile = []string{
	"\x1b[2J\x1b[H\x1b]0;title\x07", "a\r\nb\tc\v\f\x00", "\xff\xfe", "\u202eabc\u202c",
	"שלום עולם", "مرحبا", "日本語の関数名", "👩‍👩‍👧‍👦🇩🇪👍🏿", "e\u0301\u0301\u0301\u0301",
	"\u200b\u200d\ufeff", "\u0600\u06dd", strings.Repeat("x", 10000), strings.Repeat("界", 10000),
	strings.Repeat("\u0300", 10000), "\u1100\u1161\u11a8", "\u2028\u2029\u0085",
}

func testHostile(t *testing.T) {
	for _, text := range hostile {
		for _, ui := range sizes {
			for _, ui.ShowGPU = range []bool{false, true} {
				state := onGPU()
				state.Command, state.Suspect, state.DropReason = text, text, text
				state.Diagnosis = text
				state.Objects, state.Keeper = grownObjects(text), keptBy(text)
				state.Verdict.WhyCode, state.Marks[1].Text = verdict.Reason(text), text
				state.GPU.Diagnosis, state.GPU.Suspect = text, text
				state.GPU.Verdict.WhyCode = verdict.Reason(text)
				for _, stacks := range [][]Stack{state.Stacks, state.GPU.Stacks} {
					for i := range stacks {
						stacks[i].Component, stacks[i].Where = text, []string{text, text}
					}
				}
				ui.Log, ui.Draft, ui.Writing = []string{text}, text, true

				drawn := Render(state, ui)
				mustFit(t, drawn, ui)
				mustBeHarmless(t, drawn)
				mustShow(t, drawn, "3m20s of 5m")
			}
		}
	}
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// mustBeHarmless checks for no escape sequences but colours, and no characters that run to the
// left, join or are invisible.
func mustBeHarmless(t *testing.T, drawn string) {
	t.Helper()
	if left := colours.ReplaceAllString(drawn, ""); strings.ContainsRune(left, '\x1b') {
		t.Errorf("an escape sequence that is no colour: %q", left)
	}

	plain := ansi.Strip(drawn)
	if !utf8.ValidString(plain) {
		t.Errorf("not UTF-8: %q", plain)
	}

	for _, r := range plain {
		if r < ' ' && r != '\n' || 0x7f <= r && r < 0xa0 || 0x200b <= r && r <= 0x200f ||
			0x2028 <= r && r <= 0x202e || 0x590 <= r && r <= 0x8ff || 0x300 <= r && r <= 0x36f ||
			r == 0xfeff {
			t.Errorf("%U is drawn", r)
		}
	}
}

func testOrder(t *testing.T) {
	state := leaking()
	for order, want := range map[Order]struct{ first, column string }{
		ByRate: {"resize0", "MiB/min"}, ByBytes: {"resize8", "bytes"}, ByObjects: {"resize2", "objects"},
	} {
		text := ansi.Strip(Render(state, UIState{Width: 80, Height: 24, Order: order}))
		mustShow(t, text, "Stacks by "+order.String(), "▾"+want.column)
		if got := regexp.MustCompile(`resize\d`).FindString(text); got != want.first {
			t.Errorf("by %s the first is %q, want %s", order, got, want.first)
		}
	}

	text := Render(state, UIState{Width: 80, Height: 24, Scroll: 3})
	mustShow(t, text, "4 to 8 of 9", "resize3", "resize7")
	if strings.Contains(text, "resize2 ") || strings.Contains(text, "resize8 ") {
		t.Errorf("shows others, too:\n%s", text)
	}
}

// A colour that is readable on both has a contrast of 3 at least to each (WCAG 2.2, 1.4.11), and
// 4.5 is more than both can have.
func testContrast(t *testing.T) {
	for _, color := range []ansi.IndexedColor{red, amber, green, blue, grey} {
		r, g, b, _ := color.RGBA()
		luminance := 0.0
		for i, channel := range []uint32{r, g, b} {
			value := float64(channel) / 0xffff
			if value <= 0.04045 {
				value /= 12.92
			} else {
				value = math.Pow((value+0.055)/1.055, 2.4)
			}
			luminance += []float64{0.2126, 0.7152, 0.0722}[i] * value
		}

		if onWhite, onBlack := 1.05/(luminance+0.05), (luminance+0.05)/0.05; onWhite < 3.8 ||
			onBlack < 3.8 {
			t.Errorf("colour %d has a contrast of %.1f on white and %.1f on black", color, onWhite,
				onBlack)
		}
	}
}
