package summary

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/breakdown"
	"github.com/allocscope/allocscope/growth/growthtest"
)

// breakdownRows is one row of each holding, which had half of it before.
func breakdownRows() []breakdown.Row {
	var rows []breakdown.Row
	for _, h := range holdings() {
		if h.ResidentBytes != 0 {
			rows = append(rows, breakdown.Row{
				PID: h.Stack.PID, Kind: h.Kind, Stack: h.Stack, Start: h.ResidentBytes / 2,
				End: h.ResidentBytes, Error: 4095.5,
			})
		}
	}
	return rows
}

func TestBreakdownOf(t *testing.T) {
	t.Run("names", func(t *testing.T) {
		resize := growthtest.PythonFrame("Image.resize", "/usr/lib/PIL/Image.py", 2192)
		augment := growthtest.PythonFrame("augment", "/job/train.py", 47)
		native := growthtest.NativeFrame("ImagingNew", "/usr/lib/_imaging.so")
		unnamed := growthtest.NativeFrame("_imaging.so+0x12", "/usr/lib/_imaging.so")
		of := func(frames ...growth.Frame) *growth.Stack { return &growth.Stack{Frames: frames} }
		for _, c := range []struct {
			stack *growth.Stack
			want  string
		}{
			{
				of(mallocF, native, native, resize, native, augment, mainFn),
				"ImagingNew (_imaging.so) < Image.resize (Image.py:2192) < augment (train.py:47)",
			},
			{
				of(unnamed, native, mainFn, native),
				"_imaging.so+0x12 < ImagingNew (_imaging.so) < main (trainer.c:40)",
			},
			{of(mallocF), "malloc (libc.so.6)"},
			{&growth.Stack{Truncated: "stack map full"}, "[stack not kept: stack map full]"},
			{
				growth.NamedStack(1, "[heap: free but resident]", "main heap"),
				"free but resident: main heap",
			},
			{growth.NamedStack(1, "[heap: allocator metadata]"), "allocator metadata"},
			{growth.NamedStack(1, "[before tracing]", "heap"), "before tracing: heap"},
			{growth.NamedStack(1, "[file: /data/a: [b].bin]"), "/data/a: [b].bin"},
			{growth.NamedStack(1, "[unexplained]"), "unexplained"},
			{
				of(resize, augment).Under("[copy-on-write]"),
				"copy-on-write: Image.resize (Image.py:2192) < augment (train.py:47)",
			},
			{growth.NamedStack(1, "[]"), "heap"},
		} {
			if got := rowName(c.stack, growth.KindHeap); got != c.want {
				t.Errorf("%+v: %q, want %q", c.stack, got, c.want)
			}
		}
	})

	// Whatever the target calls its files and functions.
	t.Run("printable names", func(t *testing.T) {
		for _, hostile := range []string{
			"\x1b[31m", "a\nb", "\u202e", "\xff\xfe", strings.Repeat("é", 4000),
			strings.Repeat("[file: ", 900),
		} {
			for _, stack := range []*growth.Stack{
				growth.NamedStack(1, "[file: "+hostile+"]"), growth.NamedStack(1, "", hostile),
				growth.NamedStack(1, hostile, hostile),
				{Frames: []growth.Frame{growthtest.PythonFrame(hostile, hostile, 1)}},
			} {
				name := BreakdownOf([]breakdown.Row{{Kind: growth.KindFile, Stack: stack}},
					1, nil)[0].Name
				if !utf8.ValidString(name) || len(name) > 300+len("…") ||
					strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) ||
					name == "" {
					t.Errorf("%q is named %q", hostile, name)
				}
			}
		}
	})

	t.Run("sums stay", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 7))
		for range 300 {
			rows := randomRows(random)
			want := make(map[breakdownPart][2]int64)
			for _, r := range rows {
				sum := want[breakdownPart{r.PID, r.Kind}]
				want[breakdownPart{r.PID, r.Kind}] = [2]int64{sum[0] + r.Start, sum[1] + r.End}
			}
			limit := random.IntN(20)
			got, count := make(map[breakdownPart][2]int64), make(map[breakdownPart]int)
			breakdown := BreakdownOf(rows, limit, nil)
			for i, r := range breakdown {
				key := breakdownPart{r.Process, r.Kind}
				got[key] = [2]int64{got[key][0] + r.StartBytes, got[key][1] + r.EndBytes}
				if count[key]++; count[key] > limit+1 || r.DeltaBytes != r.EndBytes-r.StartBytes {
					t.Fatalf("row %+v, the %dth of its kind", r, count[key])
				}
				before := breakdown[max(i-1, 0)]
				if before.Process > r.Process || before.Process == r.Process &&
					magnitude(before.DeltaBytes) < magnitude(r.DeltaBytes) {
					t.Fatalf("%+v before %+v", before, r)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("sums %v, want %v", got, want)
			}
			slices.Reverse(rows)
			if again := BreakdownOf(rows, limit, nil); !slices.EqualFunc(again, breakdown,
				func(a, b BreakdownRow) bool {
					a.ErrorBytes, b.ErrorBytes = 0, 0 // rounded in the order of the sum
					return a == b
				}) {
				t.Fatal("the order of the rows matters")
			}
		}
	})

	t.Run("kept rows", func(t *testing.T) {
		var rows []breakdown.Row
		add := func(name string, start, end int64, err float64) {
			rows = append(rows, breakdown.Row{
				PID: 1, Kind: growth.KindFile, Stack: growth.NamedStack(1, "[file: "+name+"]"),
				Start: start, End: end, Error: err,
			})
		}
		add("grew", 0, 50, 0)
		add("fell", 70, 10, 0)
		add("large", 1000, 1000, 0)
		add("large too", 900, 901, 0)
		add("small", 7, 9, 3)
		add("smaller", 5, 6, 4)
		losses := growth.Losses{{Kind: growth.LossLiveFull, Count: 1}} // no file depends on them
		got := BreakdownOf(rows, 4, losses)
		want := []BreakdownRow{
			{1, growth.KindFile, "fell", 70, 10, -60, 0, "", "fell", ""},
			{1, growth.KindFile, "grew", 0, 50, 50, 0, "", "grew", ""},
			{1, growth.KindFile, "other files", 12, 15, 3, 5, "", "", ""},
			{1, growth.KindFile, "large too", 900, 901, 1, 0, "", "large too", ""},
			{1, growth.KindFile, "large", 1000, 1000, 0, 0, "", "large", ""},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// randomRows are of a few processes, kinds and names, some of which read alike.
func randomRows(random *rand.Rand) []breakdown.Row {
	kinds := []growth.Kind{
		growth.KindHeap, growth.KindFile, growth.KindRetained, growth.KindUnexplained,
	}
	var rows []breakdown.Row
	for range random.IntN(400) {
		stack := growth.NamedStack(0, "", fmt.Sprintf("f%d", random.IntN(60)))
		stack.ID = random.Uint64()
		rows = append(rows, breakdown.Row{
			PID: random.IntN(3), Kind: kinds[random.IntN(len(kinds))], Stack: stack,
			Start: random.Int64N(1<<40) - 1<<38, End: random.Int64N(1<<40) - 1<<38, Error: 3,
		})
	}
	return rows
}

type breakdownPart struct {
	process int
	kind    growth.Kind
}

func TestResidentsOf(t *testing.T) {
	start := []growth.Resident{
		{PID: 1, RSS: 10, Threads: 1}, {PID: 2, RSS: 20, Threads: growth.Unknown},
	}
	end := []growth.Resident{
		{PID: 3, RSS: 30, Threads: 3}, {PID: 1, RSS: growth.Unknown, Threads: 4, Arenas: 2},
	}
	want := []Resident{
		{Process: 3, EndBytes: new(int64(30)), Threads: new(int64(3))},
		{Process: 1, StartBytes: new(int64(10)), Threads: new(int64(4)), Arenas: 2},
		{Process: 2, StartBytes: new(int64(20))},
	}
	if got := ResidentsOf(start, end); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
