package trace

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestResult(t *testing.T) {
	t.Run("nothing accumulated", testNothingAccumulated)
	t.Run("program that ends at once", testBriefProgram)
	t.Run("breakdown", testBreakdown)
	t.Run("parts of the breakdown", testParts)
	t.Run("objects and keepers", testObjectsDetails)
}

// For a program of `allocscope run` that ends at once, a line is enough.
func testBriefProgram(t *testing.T) {
	s := &summary.Summary{
		Process: summary.Process{PID: 42, Command: "true"}, Launched: true, DurationS: 0.1,
		Ended: summary.EndedExit,
	}
	lines := func(how Print) int {
		var out bytes.Buffer
		tracertest.NoError(t, PrintResult(&out, s, words.Place{}, how))
		return strings.Count(out.String(), "\n")
	}
	if n := lines(Print{}); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
	if n := lines(Print{Details: true}); n < 5 {
		t.Errorf("%d lines with details", n)
	}
	s.Launched = false
	if n := lines(Print{}); n < 5 {
		t.Errorf("%d lines of a trace", n)
	}
}

func testObjectsDetails(t *testing.T) {
	grown := int64(3 << 20)
	held, heldMore, more := int64(5<<20), int64(4<<20), 6
	s := &summary.Summary{
		Process: summary.Process{PID: 42},
		Accumulating: []summary.Accumulation{{
			Function: "resize", Kind: growth.KindHeap, Stack: []string{"resize (/src/Image.py:7)"},
			StackIDs: []string{"abc"},
		}},
		Objects: &summary.Objects{
			Python: "3.11", Share: 0.5, Missing: census.MissingLarge, InCPPOnlyBytes: &held,
			InCPPOnlyGrowthBytes: &heldMore,
			Types: []summary.TypeGrowth{{
				Type: "PIL.Image.Image", Before: 100, After: 1022, Bytes: 1 << 20, PerMin: 461,
				LowPerMin: 458.5, HighPerMin: 463.5,
			}},
			Tensors: []summary.TensorGroup{{
				DType: "float32", Shape: []int64{64, 3}, Device: "cpu", Storages: 7, Tensors: 9,
				Bytes: 4 << 20, GrowthBytes: &grown, GrowthTensors: &more, StackID: "abc",
			}},
		},
		Keepers: []summary.Keeper{
			{
				StackID: "abc", Samples: 8, AtS: 290,
				Paths: []keeper.Path{{
					Root:    keeper.Root{Kind: keeper.RootGlobal, Module: "train", Name: "cache"},
					Samples: 8, Share: 1, Complete: true,
				}},
			},
			{
				Type: "dict", Samples: 3, Reason: keeper.ReasonUnreferenced, Garbage: 0,
				Paths: []keeper.Path{},
			},
		},
	}
	s.Keepers[0].Paths[0].Links = []keeper.Link{
		{How: keeper.HowVariable, Type: "dict", Entries: 2000},
	}

	var out bytes.Buffer
	tracertest.NoError(t, printObjects(&out, s))
	text := strings.Join(singleSpaced(out.String()), "\n")
	mustSay(t, "the details", text,
		"Types of Python objects that grow (Python 3.11):",
		"+461/min 459-464 100 1,022 +1.00 MiB PIL.Image.Image",
		"- - - 5.00 MiB +4.00 MiB held by C++ alone, such as what autograd has saved\n"+
			"7 9 +6 4.00 MiB +3.00 MiB float32 [64, 3] cpu: resize (Image.py:7)",
		"objects: 50% of the memory of small objects was read",
		"objects: not counted: objects above 512 bytes",
		"resize (Image.py:7) (8 samples, at 290.0 s)", "8 of 8: train.cache (dict, 2,000 entries); no other reference",
		"objects of type dict (3 samples, at 0.0 s)",
		"not found: nothing that was searched refers to them")

	out.Reset()
	if err := printObjects(&out, &summary.Summary{}); err != nil || out.Len() > 0 {
		t.Errorf("without a census: %q, %v", out.String(), err)
	}
}

func testNothingAccumulated(t *testing.T) {
	var out bytes.Buffer
	if err := PrintDetails(&out, &summary.Summary{
		Process:   summary.Process{PID: 42, Command: "job"},
		DurationS: 1.25, Ended: summary.EndedDuration,
	}, "/tmp/my folder"); err != nil {
		t.Fatal(err)
	}

	mustSay(t, "the table", out.String(), "job (PID 42), 1.2 s, "+words.End(summary.EndedDuration)+
		"\n", words.NothingAccumulated(&summary.Summary{}), "allocscope view '/tmp/my folder'\n",
		"'/tmp/my folder/growth.pb.gz'\n")

	if strings.Contains(out.String(), "RSS") {
		t.Errorf("speaks of an RSS that is not known:\n%s", out.String())
	}
}

const mib = 1 << 20

func breakdownRow(process int, kind growth.Kind, start, end, err float64) summary.BreakdownRow {
	from, to := int64(start*mib), int64(end*mib)
	return summary.BreakdownRow{
		Process: process, Kind: kind, StartBytes: from, EndBytes: to,
		DeltaBytes: to - from, ErrorBytes: int64(err * mib),
	}
}

func bytesAt(size int64) *int64 {
	size *= mib
	return &size
}

// breakdownSummary is a process of many kinds, traced with all sources.
func breakdownSummary() *summary.Summary {
	threads := int64(17)
	return &summary.Summary{
		Process: summary.Process{PID: 42},
		Breakdown: []summary.BreakdownRow{
			breakdownRow(42, growth.KindHeap, 100, 300, 3), breakdownRow(42, growth.KindHeap, 0, 200, 4),
			breakdownRow(42, growth.KindRetained, 10, 41, 4), breakdownRow(42, growth.KindPython, 5, 25, 0),
			breakdownRow(42, growth.KindFile, 90, 80, 0), breakdownRow(42, growth.KindStack, 1, 6, 0),
			breakdownRow(42, growth.KindMmap, 0, 4, 0), breakdownRow(42, growth.KindJIT, 0, 2, 0),
			breakdownRow(42, growth.KindShmem, 7, 8, 0),
			breakdownRow(42, growth.KindBeforeTracing, 500, 500, 0),
			breakdownRow(42, growth.KindUnexplained, 1, 0.5, 0),
			breakdownRow(42, growth.KindSwapped, 0, 700, 0),
			breakdownRow(0, growth.KindHeap, 100, 900, 0),
			breakdownRow(0, growth.KindUnexplained, 0, 1, 0),
		},
		Residents: []summary.Resident{{
			Process: 42, HeapTraced: true, Threads: &threads, Arenas: 12,
			EndBytes: bytesAt(1166),
		}},
	}
}

func breakdownText(t *testing.T, s *summary.Summary) string {
	t.Helper()
	var out bytes.Buffer
	tracertest.NoError(t, printBreakdown(&out, s))
	return out.String()
}

// singleSpaced returns the lines with single spaces.
func singleSpaced(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func testBreakdown(t *testing.T) {
	got := strings.Join(singleSpaced(breakdownText(t, breakdownSummary())), "\n")
	want := strings.Join([]string{
		"", "What the growth of RSS is made of (PID 42: +452 MiB):", "",
		"growth ± 95% at the end what",
	}, "\n")

	lines := breakdownSummary()
	book, resident := words.BreakdownOf(lines.Breakdown, 42), lines.MainResident()
	numbers := []string{
		"+400 MiB 5.00 MiB 500 MiB", "+31.0 MiB 4.00 MiB 41.0 MiB", "+20.0 MiB 25.0 MiB",
		"-10.0 MiB 80.0 MiB",
		"+5.00 MiB 6.00 MiB", "+4.00 MiB 4.00 MiB", "+3.00 MiB 510 MiB", "-512 KiB 512 KiB",
	}

	for i, line := range book.Lines(maxKindLines, resident) {
		want += "\n" + numbers[i] + " " + line.Label
	}

	want += "\n+452 MiB 1.14 GiB RSS, as the kernel counts"
	if got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
}

func testParts(t *testing.T) {
	const tree = "\nIts tree, with 1 other process, shared pages once (+801 MiB):\n"
	with := func(others ...summary.Resident) func(*summary.Summary) {
		return func(s *summary.Summary) { s.Residents = append(s.Residents, others...) }
	}
	kinds := func(more ...summary.BreakdownRow) func(*summary.Summary) {
		return func(s *summary.Summary) { s.Breakdown = append(s.Breakdown[:8:8], more...) }
	}
	shmem, unexplained := growth.KindShmem, growth.KindUnexplained

	for name, c := range map[string]struct {
		edit      func(*summary.Summary)
		says, not string
	}{
		"as many kinds as lines": {kinds(breakdownRow(42, unexplained, 1, 1, 0)), "", "other kinds"},
		"two kinds more": {
			kinds(breakdownRow(42, shmem, 7, 8, 0), breakdownRow(42, unexplained, 1, 1, 0),
				breakdownRow(42, growth.KindJIT, 0, 1, 0)),
			"2 other kinds", "",
		},
		"source heap": {with(), "", "are unknown"},
		"no source heap": {
			func(s *summary.Summary) { s.Residents[0].HeapTraced = false },
			"source heap was not attached to PID 42.", "",
		},
		"one process": {with(), "", "tree"},
		"others that hold next to nothing": {
			with(summary.Resident{Process: 43, StartBytes: bytesAt(9)},
				summary.Resident{Process: 45, EndBytes: bytesAt(8)}), "", "tree",
		},
		"another": {with(summary.Resident{Process: 45, EndBytes: bytesAt(80)}), tree, ""},
		"advice": {
			func(s *summary.Summary) {
				s.Advice = []advice.Advice{
					{About: advice.AboutCache, PID: 42}, {About: advice.AboutCache, PID: 43},
				}
			},
			"\nadvice: PID 43: the container's page cache grew by", "PID 42: the container",
		},
		"no breakdown": {func(s *summary.Summary) { s.Breakdown = nil }, "", "\n"},
	} {
		s := breakdownSummary()
		c.edit(s)
		text := breakdownText(t, s)
		if !strings.Contains(text, c.says) || c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: want %q, not %q:\n%s", name, c.says, c.not, text)
		}
	}
}
