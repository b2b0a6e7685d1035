package summary

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

func summary() Summary {
	return Summary{
		Version:     "v0.1.0",
		CommandLine: []string{"allocscope", "trace", "--pid", "4242"},
		Started:     time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		DurationS:   Seconds(300*time.Second + 1234567*time.Nanosecond),
		Ended:       EndedDuration,
		Notes:       []Note{{Code: NoteSampling, Plan: Plan{IntervalBytes: 1}}},
		Process: Process{
			PID: 4242, Command: "trainer", Executable: trainer.Path,
			Arguments: []string{"trainer", "--fast"},
		},
		Verdict: VerdictOf(judged(), AxisSeconds),
		Asked:   4200,
		Processes: []TreeProcess{
			{
				PID: 4200, Parent: 1, Role: growth.RoleLauncher, Command: "uv run trainer",
				LastS: 300, StartBytes: new(int64(9 << 20)),
			},
			{
				PID: 4242, Parent: 4200, Role: growth.RoleRank, Rank: new(0),
				Command: "trainer", Traced: true, FirstS: 1, LastS: 300, Verdict: verdict.ClassLeak,
			},
		},
		Groups: []Group{
			{
				Role: growth.RoleCompileWorker, Processes: 20,
				EachBytes: new(int64(400 << 20)), PrivateBytes: new(int64(1 << 30)),
				Verdict: verdict.ClassPlateau,
			},
		},
		Limit:         &Limit{Of: "cgroup", HeadroomBytes: 7 << 30},
		Steps:         &Steps{Count: 2400, PerMin: 600, GrowthBytesPerStep: new(int64(1 << 20))},
		Marks:         []Mark{{AtS: 61.5, Text: "epoch 1"}},
		Suspects:      []Suspect{SuspectOf(sampleSuspect())},
		Kernel:        "6.8.0",
		Architecture:  "amd64",
		IntervalBytes: 512 << 10,
		Sources: []Source{
			{Name: "heap", State: SourceAttached},
			{Name: "mapping", State: SourceFailed, SourceFailure: growth.SourceFailure{
				Reason: growth.SourceOther, Detail: "permission denied",
			}},
		},
		BaselineS: new(60.0),
		RSS: RSS{
			StartBytes: new(int64(0)), BaselineBytes: new(int64(1 << 30)),
			EndBytes: new(int64(2 << 30)), GrowthBytesPerMin: BytesPerMin(1<<30, 4*time.Minute),
		},
		Live: LiveOf(holdings()),
		Mappings: MappingsOf(growth.MappingTotals{
			Vanished: 12288, Reserved: 1, Touched: 2, Allocator: 3, Unknown: 4, Unmeasured: 5,
			Released: 6, Unmapped: 7,
		}),
		SnapshotsS:   []float64{0.5, 60.25},
		Accumulating: Accumulating(holdings(), Period{Elapsed: 4 * time.Minute}, 4),
		Breakdown:    BreakdownOf(breakdownRows(), 10, nil),
		Residents: ResidentsOf(nil, []growth.Resident{{
			PID: 4242, Parent: 1, Traced: true, HeapTraced: true, Role: growth.RoleTrainer,
			RSS: 2 << 30, Threads: 17, Arenas: 12, Scanned: 1,
		}}),
		Diagnoses: append(
			DiagnosesOf(4242, []diagnosis.Diagnosis{
				{
					Cause: diagnosis.Fragmentation, Bytes: 164 << 20, Error: 1e6, Rate: 41 << 20 / 60.0,
					Share: 0.97, Confidence: diagnosis.High, Free: 1,
				},
				{Cause: diagnosis.Undecided, Bytes: 5 << 20, Rate: 1 << 20 / 60.0, Share: 0.03},
			}),
			DiagnosesOf(0, []diagnosis.Diagnosis{
				{Cause: diagnosis.CopyOnWrite, Bytes: 9, Share: 1, Confidence: diagnosis.High},
			})...,
		),
		Advice: []advice.Advice{
			{About: advice.AboutRetained, PID: 4242, Bytes: 90 << 20, RSSShare: 0.25, Arenas: 1},
			{About: advice.AboutCache, Growth: 256 << 20, Of: 25 << 20},
		},
		Objects: ObjectsOf(censusAt(time.Minute, 100, 3), censusAt(3*time.Minute, 1022, 4)),
		Keepers: KeepersOf([]keeper.Search{
			cacheSearch(), {PID: 4242, Type: "dict", Reason: keeper.ReasonFreed, Collections: -1},
		}),
		GPUMemory: []GPUMemory{GPUMemoryOf(gpuInput())},
		GPUs: GPUsOf([]growth.GPUSample{
			{Index: 0, Instance: -1, UUID: "GPU-1", Name: "H100", Used: 10_000, Total: 1 << 30},
			{Index: 1, Instance: 2, Used: growth.Unknown, Total: 1 << 29},
		}),
		Events: growth.Events{
			Allocations: 6, Frees: 5, FreesUntracked: 4, Samples: 3, Failed: 2, MappingCalls: 1,
		},
		Overhead: &Overhead{
			Limit: 0.03, Slowdown: new(0.019), WaitedS: new(0.3), ShimS: new(0.4), InProbesS: new(4.2), OwnS: 1.5,
			TracedS: 300,
			Mode:    growth.HeapBursts, Bursts: 11, OpenS: 5.4, LagS: 60,
			IntervalBytes: 64 << 10, StepBeforeS: new(0.1821), StepSinceS: new(0.1839),
			Changes: []OverheadChange{
				{AtS: 2.5, Mode: growth.HeapBursts, OverheadChange: growth.OverheadChange{
					Reason: growth.OverheadExpensive, Source: "heap", Share: 0.41, Length: 0.5,
				}},
			},
		},
		Losses:  []growth.Loss{{Kind: growth.LossUnknownStacks, Count: 3}},
		Files:   map[string]string{"growth": folder.GrowthFile, "timeline": folder.TimelineFile},
		Stopped: true,
		Condition: &Condition{
			Halt: growth.HaltStopped, StoppedS: 3, FrozenS: 7, RemainingThreads: 2,
		},
	}
}

func sampleSuspect() trend.Suspect {
	return trend.Suspect{
		Component: "train.py", Frame: growthtest.PythonFrame("remember", "/src/train.py", 7),
		Lines: []trend.LineShare{{Line: 7, Share: 0.6}, {Line: 9, Share: 0.4}}, NewCode: 0.2,
		Growth: 2e8, Rate: 1e6, Share: 0.97, Stacks: 3, Inclusive: 0.99,
		Trend: growth.TrendAccumulating,
		Path:  []growth.Frame{growthtest.NativeFrame("resize", "/lib/pil.so")},
		Above: []growth.Frame{growthtest.PythonFrame("step", "/src/train.py", 40)},
	}
}

// Where nothing resident grew there is no share of it.
func TestSuspectOf(t *testing.T) {
	c := sampleSuspect()
	c.Share = math.NaN()
	if got := SuspectOf(c); got.Share != nil || got.Bytes != 2e8 || got.BytesPerMin != 6e7 {
		t.Errorf("%+v", got)
	}
}

func TestSummary(t *testing.T) {
	want := summary()
	var buf bytes.Buffer
	do(t, want.Write(&buf))
	exporttest.Golden(t, "summary.json", buf.Bytes())
	decoder := json.NewDecoder(&buf)
	decoder.DisallowUnknownFields()
	var got Summary
	do(t, decoder.Decode(&got))
	want.Schema, want.NextSteps = Schema, want.WhatNext()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	// Unknown values are absent, lists are there.
	t.Run("empty", func(t *testing.T) {
		var buf bytes.Buffer
		do(t, (&Summary{}).Write(&buf))
		exporttest.Golden(t, "summary_empty.json", buf.Bytes())
		if bytes.Contains(buf.Bytes(), []byte("null")) {
			t.Error("null in the summary")
		}
	})

	t.Run("not finite", func(t *testing.T) {
		var buf bytes.Buffer
		exporttest.WantError(t, (&Summary{DurationS: math.Inf(1)}).Write(&buf), "unsupported value")
		if buf.Len() > 0 {
			t.Errorf("written nevertheless: %s", buf.Bytes())
		}
	})

	// Without a limit the cost of probes is not measured; the list of changes is there.
	t.Run("overhead that was not measured", func(t *testing.T) {
		var buf bytes.Buffer
		full := Summary{Overhead: &Overhead{Mode: growth.HeapFull, IntervalBytes: 1}}
		do(t, full.Write(&buf))
		const want = `  "overhead": {
    "mode": "full",
    "bursts": 0,
    "open_s": 0,
    "interval_bytes": 1,
    "changes": []
  },
`
		if !strings.Contains(buf.String(), want) {
			t.Errorf("got %s", buf.String())
		}
	})
}

func TestAccumulating(t *testing.T) {
	t.Run("counts beside losses are not exact", func(t *testing.T) {
		for loss, want := range map[growth.LossKind]bool{
			growth.LossLiveFull: false, growth.LossTruncatedStacks: true,
		} {
			end := &growth.Snapshot{Losses: growth.Losses{{Kind: loss, Count: 1}}}
			h := growth.Holding{Stack: &growth.Stack{ID: 1}, Kind: growth.KindHeap, InuseBytes: 60}
			row := Accumulating([]growth.Holding{h}, Period{Elapsed: time.Minute, End: end}, 1)[0]
			if row.Bytes != 60 || (row.RateLow != nil) != want || (row.RateHigh != nil) != want {
				t.Errorf("%s: %+v", loss, row)
			}
		}
	})

	t.Run("ranks", func(t *testing.T) {
		all := Accumulating(holdings(), Period{Elapsed: 4 * time.Minute}, 100)
		// Stacks that shrank are left out, and memory that no source has seen allocated.
		const sum = 1572864 + 524288 + 262144 + 2048
		var share float64
		for i, a := range all {
			if a.Rank != i+1 || a.Share != float64(a.Bytes)/sum || a.Function == "" ||
				len(a.Stack) == 0 {
				t.Errorf("entry %d: %+v", i, a)
			}
			share += a.Share
		}
		if len(all) != 4 || math.Abs(share-1) > 1e-12 {
			t.Errorf("%d entries that share %v, want 4 that share 1", len(all), share)
		}
		if first := all[0]; first.Function != "leak_block" || first.Module != trainer.Path ||
			*first.BytesPerMin != 393216 || first.Objects != 1000 {
			t.Errorf("first %+v", first)
		}
		if one := Accumulating(holdings(), Period{}, 1); len(one) != 1 ||
			one[0].BytesPerMin != nil || one[0].Share != all[0].Share {
			t.Errorf("the first alone: %+v", one)
		}
		if none := Accumulating(nil, Period{Elapsed: time.Minute}, 10); len(none) != 0 {
			t.Errorf("nothing grew: %+v", none)
		}
	})

	t.Run("same text", func(t *testing.T) {
		at := func(id, address uint64, bytes int64) growth.Holding {
			frames := []growth.Frame{
				{Function: "malloc", Address: 0x100 + id}, {Function: "leak", Address: address},
			}
			return growth.Holding{
				Stack: &growth.Stack{ID: id, Frames: frames}, Kind: growth.KindHeap,
				InuseObjects: 1, InuseBytes: bytes,
			}
		}
		shrunk, other := at(3, 0x4020, -30), at(4, 0x4000, 7)
		other.Kind = growth.KindMmap
		rows := Accumulating([]growth.Holding{at(1, 0x4000, 100), at(2, 0x4010, 50), shrunk, other},
			Period{Elapsed: time.Minute}, 10)
		if len(rows) != 2 || rows[0].Bytes != 120 || rows[0].Objects != 3 || rows[1].Bytes != 7 {
			t.Errorf("rows are %+v, want one of 120 bytes and one of 7", rows)
		}
	})

	t.Run("interval, history and age", func(t *testing.T) {
		at := func(id uint64, bytes int64, births ...growth.Birth) growth.Holding {
			frames := []growth.Frame{{Function: "malloc"}, {Function: "leak", Address: id}}
			return growth.Holding{
				Stack: &growth.Stack{ID: id, PID: 7, Frames: frames}, Kind: growth.KindHeap,
				InuseBytes: bytes, Births: births,
			}
		}
		minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
		bins := []time.Duration{minutes(1), minutes(2), minutes(3)}
		begin := &growth.Snapshot{Elapsed: minutes(1), Holdings: []growth.Holding{at(1, 100)}}
		middle := &growth.Snapshot{
			Elapsed: minutes(2), Holdings: []growth.Holding{at(2, 30), at(1, 200)},
		}
		end := &growth.Snapshot{Elapsed: minutes(3), Bins: bins, Holdings: []growth.Holding{
			at(1, 300, growth.Birth{Bin: 0, InuseBytes: 300}),
			at(2, 100, growth.Birth{Bin: 2, InuseBytes: 100}),
			{Stack: &growth.Stack{ID: 9}, Kind: growth.KindFile},
		}}
		grown := growth.Between(begin, end)
		for i := range grown {
			grown[i].Variance = 50 * 50 // of two stacks: 50 * sqrt(2)
		}
		snapshots := []*growth.Snapshot{begin, middle, end}
		rows := Accumulating(grown, Period{Elapsed: minutes(2), Snapshots: snapshots, End: end}, 10)
		if len(rows) != 1 {
			t.Fatalf("%d rows: %+v", len(rows), rows)
		}
		r := rows[0] // (300 ± 1.96 * 50 * sqrt(2)) / 2; (300 * 150 s + 100 * 30 s) / 400
		if *r.BytesPerMin != 150 || *r.RateLow != 81 || *r.RateHigh != 220 || r.AgeS == nil ||
			*r.AgeS != 120 || r.Component == "" {
			t.Errorf("%d (%d to %d) bytes a minute, age %v, component %q", *r.BytesPerMin,
				*r.RateLow,
				*r.RateHigh, r.AgeS, r.Component)
		}
		if !reflect.DeepEqual(r.HistoryBytes, []int64{100, 230, 400}) {
			t.Errorf("held %v, want 100, 230 and 400", r.HistoryBytes)
		}
	})
}

func TestRead(t *testing.T) {
	want := summary()
	var first, second bytes.Buffer
	do(t, want.Write(&first))
	written := first.String()
	got, err := Read(&first)
	do(t, err)
	do(t, got.Write(&second))
	if second.String() != written {
		t.Errorf("read as\n%s", second.String())
	}

	t.Run("errors", func(t *testing.T) {
		for content, want := range map[string]string{
			"": "the file is truncated", `{"schema": "allocscope/1", "dur`: "the file is truncated",
			`{"schema": "allocscope/2"}`:    `schema is "allocscope/2"`,
			`{"schema": "allocscope/1"} {}`: "data after its end", `{"schema": 1}`: "schema",
			"\x00": "invalid character",
			`{"schema": "allocscope/1", "accumulating": [` + strings.Repeat("{}, ", 200_000) +
				"{}]}": "more than 200000 objects",
			`{"schema": "allocscope/1"` + string(bytes.Repeat([]byte(" "), maxSummaryBytes)) +
				"}": "larger than 33554432 bytes",
		} {
			_, err := Read(bytes.NewReader([]byte(content)))
			exporttest.WantError(t, err, want)
		}
	})
}
