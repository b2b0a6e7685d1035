package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/net/html"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const mib = 1 << 20

// leakingTrace is a trace of five minutes that has all that a report can show.
func leakingTrace(t testing.TB) *Trace {
	t.Helper()
	return &Trace{Summary: leakingSummary(), Rows: timelineRows(300), Growth: grownProfile(t)}
}

func leakingSummary() summary.Summary {
	v := verdict.Verdict{
		Class: verdict.ClassLeak, Reason: verdict.ReasonAfterWarmup, Rate: 1 * mib,
		RateLow: 0.9 * mib, RateHigh: 1.1 * mib, Bound: 1.05 * mib, Level: 500 * mib, LevelAt: 170,
		From: 60, Length: 240, ToLimit: 1800, ToLimitLow: 1700, ToLimitHigh: 1900,
		Spikes: &verdict.Spikes{Share: 0.1, Height: 64 * mib},
		Phases: []verdict.Phase{
			{Kind: verdict.PhaseWarmup, To: 60, Rate: 5 * mib},
			{Kind: verdict.PhaseGrowth, From: 60, To: 300, Rate: 1 * mib},
		},
	}
	s := summary.Summary{
		Schema: summary.Schema, Version: "v1.2.3",
		CommandLine: []string{"allocscope", "trace", "--pid", "42", "-o", "my folder"},
		Started:     time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), DurationS: 300,
		Ended: summary.EndedDuration, Verdict: summary.VerdictOf(v, summary.AxisSeconds),
		Process: summary.Process{
			PID: 42, Command: "python3", Executable: "/usr/bin/python3",
			Arguments: []string{"python3", "train.py"},
		},
		Processes: []summary.TreeProcess{
			{
				PID: 41, Role: growth.RoleLauncher, Command: "uv run", LastS: 300,
				StartBytes: new(int64(9 * mib)),
			},
			{
				PID: 42, Parent: 41, Role: growth.RoleRank, Rank: new(3), Command: "python3",
				Traced: true, LastS: 300, EndBytes: new(int64(620 * mib)),
				Verdict: verdict.ClassLeak,
			},
		},
		Outlier: &summary.Outlier{
			PID: 7, Rank: 3, Ranks: 8, RateBytesPerMin: 60 * mib, OthersBytesPerMin: 10 * mib,
			Ratio: new(6.), Z: new(98.), Chance: 0.002, Site: conclude.SiteSame,
		},
		Groups: []summary.Group{{
			Role: growth.RoleLoaderWorker, Processes: 4, EachBytes: new(int64(90 * mib)),
			Verdict: verdict.ClassGrowing,
		}},
		Limit: &summary.Limit{Of: "cgroup", HeadroomBytes: 1800 * mib},
		Steps: &summary.Steps{Count: 2400, PerMin: 600, GrowthBytesPerStep: new(int64(104858))},
		Marks: []summary.Mark{{AtS: 61.5, Text: "epoch 1"}},
		Suspects: []summary.Suspect{{
			Component: "pil", Function: "resize (/src/Image.py:2192)", Bytes: 240 * mib,
			BytesPerMin: 60 * mib, Share: new(0.98), Explains: 1, Stacks: 3,
			Callers: []string{"augment (/src/train.py:47)"}, StackIDs: []string{"abc"},
		}},
		Objects: sampleObjects(), Keepers: sampleKeepers(),
		Kernel: "6.12.0", Architecture: "amd64", IntervalBytes: 512 << 10,
		Sources: []summary.Source{
			{Name: "heap", PID: 42, State: summary.SourceAttached},
			{Name: "fault", State: summary.SourceFailed, SourceFailure: growth.SourceFailure{
				Reason: growth.SourceOther, Detail: "permission denied",
			}},
		},
		BaselineS: new(60.0),
		RSS: summary.RSS{
			StartBytes: new(int64(80 * mib)), BaselineBytes: new(int64(380 * mib)),
			EndBytes: new(int64(620 * mib)), GrowthBytesPerMin: new(int64(60 * mib)),
		},
		SnapshotsS: []float64{0, 60, 180, 300},
		Accumulating: []summary.Accumulation{{
			Rank: 1, Function: "memory_get_block", Module: "/lib/_imaging.so",
			Kind: growth.KindMmap, Objects: 1956, Bytes: 230 * mib,
			BytesPerMin: new(int64(57 * mib)), Share: 0.97,
			Trend: growth.TrendAccumulating, Component: "pil", RateLow: new(int64(55 * mib)),
			RateHigh: new(int64(59 * mib)), AgeS: new(61.0),
			HistoryBytes: []int64{0, 10 * mib, 120 * mib, 240 * mib},
			Stack: []string{
				"memory_get_block (/lib/_imaging.so)", "resize (/src/Image.py:2192)",
				"augment (/src/train.py:47)", "[truncated: more than 127 frames]",
			},
		}},
		SpikeMemory: spikeMemory(),
		Breakdown:   sampleBreakdown(),
		Residents: []summary.Resident{
			{
				Process: 42, Traced: true, HeapTraced: true, StartBytes: new(int64(380 * mib)),
				EndBytes: new(int64(620 * mib)), Scanned: 0.5, Arenas: 8,
				Threads: new(int64(9)),
			},
			{Process: 50, EndBytes: new(int64(90 * mib))},
		},
		Advice: []advice.Advice{
			{About: advice.AboutRetained, PID: 42, Bytes: 90 * mib, RSSShare: 0.25, Arenas: 1},
			{About: advice.AboutRetained, PID: 50, Bytes: 40 * mib, Arenas: 8, IsArenaLimit: true},
		},
		Losses: []growth.Loss{{Kind: growth.LossUnknownStacks, Count: 3}},
		Overhead: &summary.Overhead{
			Limit: 0.03, Slowdown: new(0.019), InProbesS: new(4.2), OwnS: 1.5, TracedS: 300,
			Mode: growth.HeapBursts, Bursts: 11, OpenS: 5.4, LagS: 60, IntervalBytes: 64 << 10,
			StepBeforeS: new(0.1821), StepBetweenS: new(0.1823),
			StepSinceS: new(0.1839), Changes: []summary.OverheadChange{
				{
					AtS: 20, Mode: growth.HeapBursts,
					OverheadChange: growth.OverheadChange{
						Reason: growth.OverheadExpensive, Source: "heap", Share: 0.41,
					},
				},
				{AtS: 90, Mode: growth.HeapBursts, OverheadChange: growth.OverheadChange{
					Reason: growth.OverheadFewWalks, Interval: 128 << 10,
				}},
			},
		},
	}
	s.Spikes.Spans = []summary.SpikeSpan{{From: new(100.0), To: new(110.0)}}
	return s
}

// sampleObjects are of a process whose pictures become more.
func sampleObjects() *summary.Objects {
	return &summary.Objects{
		Python: "3.11", BeforeS: new(60.0), AfterS: 300, Share: 0.5,
		Types: []summary.TypeGrowth{{
			Type: "PIL.Image.Image", Before: 100, After: 1944, Bytes: 3 * mib, PerMin: 461,
			LowPerMin: 455, HighPerMin: 467,
		}},
		Largest: []summary.TypeCount{
			{Type: "builtins.module", Count: 20_000, Bytes: 9 * mib, Margin: 120},
		},
		Tensors: []summary.TensorGroup{{
			DType: "float32", Shape: []int64{64, 3, 224, 224}, Device: "cpu", Storages: 12,
			Tensors: 24, Bytes: 440 * mib, GrowthBytes: new(int64(36 * mib)),
			GrowthTensors: new(3), StackID: "abc",
		}},
		InCPPOnlyBytes: new(int64(100 * mib)), Missing: "objects above 512 bytes",
		Inconsistent: 1,
	}
}

func sampleKeepers() []summary.Keeper {
	return summary.KeepersOf([]keeper.Search{
		{
			PID: 42, Stack: 0xabc, Samples: 8, Elapsed: 290 * time.Second,
			Paths: []keeper.Path{{
				Root: keeper.Root{
					Kind: keeper.RootGlobal, Module: "__main__", File: "/src/train.py", Name: "cache",
				},
				Links: []keeper.Link{
					{How: keeper.HowVariable, Type: "dict", Entries: 10_512, PerMinute: 461},
					{How: keeper.HowValue, Type: "PIL.Image.Image", Entries: -1},
				},
				Samples: 6, Complete: true,
			}},
			Reason: keeper.ReasonGarbage, Garbage: 2, CollectionsTime: 290 * time.Second,
		},
		{PID: 42, Type: "dict", Samples: 3, Reason: keeper.ReasonUnreferenced, Collections: -1},
	})
}

// spikeMemory is of a validation that holds 64 MiB each minute.
func spikeMemory() *summary.SpikeMemory {
	return &summary.SpikeMemory{
		Count: 4, PeakBytes: 66 * mib, PeriodS: new(60.0), ExtraSnapshots: 2,
		Captured: &summary.CapturedSpike{
			AtS: 105, BeforeS: 100, AfterS: new(115.0), Bytes: 65 * mib,
			Stacks: []summary.Accumulation{{
				Rank: 1, Function: "validate", Kind: growth.KindMmap, Bytes: 64 * mib, Share: 0.98,
				Component: "eval.py", Stack: []string{"validate (/src/eval.py:31)"},
			}},
			Suspect: &summary.Suspect{
				Component: "eval.py", Function: "validate (/src/eval.py:31)", Bytes: 64 * mib,
				Explains: 1, Stacks: 1, Callers: []string{"main (/src/train.py:60)"},
			},
		},
	}
}

// sampleBreakdown is of a process that gains 240 MiB from 380, and of its tree.
func sampleBreakdown() []summary.BreakdownRow {
	var rows []summary.BreakdownRow
	row := func(process int, kind growth.Kind, start, end, err int64) {
		rows = append(rows, summary.BreakdownRow{
			Process: process, Kind: kind, Name: "what", StartBytes: start * mib,
			EndBytes: end * mib, DeltaBytes: (end - start) * mib, ErrorBytes: err * mib,
		})
	}
	row(42, growth.KindHeap, 200, 500, 20)
	row(42, growth.KindRetained, 80, 30, 20)
	row(42, growth.KindBeforeTracing, 60, 58, 0)
	row(42, growth.KindFile, 40, 40, 0)
	row(42, growth.KindUnexplained, 0, -8, 0)
	row(42, growth.KindSwapped, 0, 7, 0)
	row(0, growth.KindHeap, 200, 500, 20)
	row(0, growth.KindUnexplained, 260, 200, 0)
	return rows
}

// timelineRows of a trace of so many seconds that gains 1 MiB a second.
func timelineRows(seconds int) []growth.Row {
	var rows []growth.Row
	for i := range seconds + 1 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS, s.Steps = time.Duration(i)*time.Second, int64(80+i)*mib, int64(10*i)
		if i%10 == 0 {
			s.Private, s.PSS = s.RSS-20*mib, s.RSS-10*mib
		}
		if i >= 20 { // torch has been imported
			s.Tensors, s.TensorBytes = int64(100+i), int64(30+i)*mib
		}
		rows = append(rows, growth.Row{
			Sample: s, Tree: growth.Tree{Processes: 6, RSS: s.RSS + 400*mib},
		})
	}
	return rows
}

// holdings that grew, of two processes, and one that shrank.
func holdings() []growth.Holding {
	library := &growth.Module{Path: "/lib/libx.so", Start: 0x1000, Limit: 0x9000}
	native := func(function string, address uint64) growth.Frame {
		return growth.Frame{Function: function, Module: library, Address: address}
	}
	malloc, leak := native("malloc", 0x1100), native("leak", 0x1200)
	step := growthtest.PythonFrame("step", "/src/train.py", 40)
	main := growthtest.PythonFrame("main", "/src/train.py", 7)
	held := func(
		pid int, objects float64, bytes, resident int64, frames ...growth.Frame,
	) growth.Holding {
		return growth.Holding{
			Stack: &growth.Stack{PID: pid, Frames: append([]growth.Frame{malloc}, frames...)},
			Kind:  growth.KindHeap, InuseObjects: objects, InuseBytes: bytes,
			ResidentBytes: resident,
		}
	}
	return []growth.Holding{
		held(42, 100, 5000, 4096, leak, step, main),
		held(42, -10, -9000, -8192, native("cache", 0x1300), main),
		held(42, 7, 100, 12288, native("other", 0x1400), main),
		held(50, 1, 100, 1000, leak, main),
		{
			Stack: growth.NamedStack(42, "[heap: free but resident]", "main heap"),
			Kind:  growth.KindRetained, ResidentBytes: 20480,
		},
	}
}

func grownProfile(t testing.TB) *pprof.Profile {
	t.Helper()
	return built(t, holdings()...)
}

func built(t testing.TB, held ...growth.Holding) *pprof.Profile {
	t.Helper()
	p, err := profile.Build(held,
		profile.Info{Processes: map[int]string{42: "python3", 50: "worker"}})
	tracertest.NoError(t, err)
	return p
}

// A shownPage is a page as a browser sees it.
type shownPage struct {
	root *html.Node
	data pageData
}

func show(t testing.TB, trace *Trace) shownPage {
	t.Helper()
	var out bytes.Buffer
	tracertest.NoError(t, Write(&out, trace))
	root := tracertest.Must(html.Parse(&out))(t)
	page := shownPage{root: root}
	tracertest.NoError(t, json.Unmarshal([]byte(text(page.byID(t, "data"))), &page.data))
	return page
}

// UnmarshalJSON reads the form in which nodes are written.
func (n *flameNode) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&n.Name, &n.Component, &n.Resident, &n.Objects, &n.Children})
}

func (p shownPage) byID(t testing.TB, id string) *html.Node {
	t.Helper()
	for n := range p.root.Descendants() {
		if attribute(n, "id") == id {
			return n
		}
	}
	t.Fatalf("there is no element %s", id)
	return nil
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// text of an element, without markup.
func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// mustSay wants words in the element of an ID.
func (p shownPage) mustSay(t *testing.T, id string, wants ...string) {
	t.Helper()
	shown := strings.Join(strings.Fields(text(p.byID(t, id))), " ")
	for _, want := range wants {
		if !strings.Contains(shown, want) {
			t.Errorf("%s does not say %q:\n%s", id, want, shown)
		}
	}
}

// links are the IDs that the navigation leads to.
func (p shownPage) links() string {
	var ids []string
	each(p.root, "nav", func(nav *html.Node) {
		each(nav, "a", func(a *html.Node) {
			ids = append(ids, strings.TrimPrefix(attribute(a, "href"), "#"))
		})
	})
	return strings.Join(ids, " ")
}

// each calls back for all elements below a node of that name.
func each(n *html.Node, name string, do func(*html.Node)) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == name {
			do(d)
		}
	}
}

// fillTexts replaces every text in a value: keys of maps, too. Texts with a meaning of their own
// stay, by the names of fields.
func fillTexts(v reflect.Value, path string, with func(path string) string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(with(path))
	case reflect.Pointer:
		if !v.IsNil() {
			fillTexts(v.Elem(), path, with)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fillTexts(v.Index(i), fmt.Sprintf("%s[%d]", path, i), with)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillTexts(v.Field(i), path+"."+v.Type().Field(i).Name, with)
			}
		}
	}
}

const gib = 1 << 30

// gpuTrace is leakingTrace on a GPU, where tensors are retained: NVML reports the driver's count.
func gpuTrace(t testing.TB) *Trace {
	t.Helper()
	trace := leakingTrace(t)
	trace.Summary.GPUMemory = []summary.GPUMemory{gpuSummary()}
	for i := range trace.Rows {
		s := &trace.Rows[i].Sample
		s.Pinned = 256 * mib
		s.GPUUsed = 500 * mib // the context
		if i < 20 {
			continue
		}
		s.CudaAllocated = int64(1000+2*i) * mib
		s.CudaReserved, s.CudaDriver = s.CudaAllocated+150*mib, s.CudaAllocated+170*mib
		s.GPUUsed = s.CudaDriver + 500*mib
	}
	onGPU(trace.Growth)
	return trace
}

// gpuSummary is the summary of a trace with 2 MiB of tensors a second, from a GiB on.
func gpuSummary() summary.GPUMemory {
	v := verdict.Verdict{
		Class: verdict.ClassLeak, Reason: verdict.ReasonAfterWarmup, Rate: 2 * mib,
		RateLow: 1.9 * mib, RateHigh: 2.1 * mib, Level: 1500 * mib, LevelAt: 170,
		From: 40, Length: 260, ToLimit: 3600, ToLimitLow: 3400, ToLimitHigh: 3800,
		Phases: []verdict.Phase{
			{Kind: verdict.PhaseWarmup, To: 40, Rate: 20 * mib},
			{Kind: verdict.PhaseGrowth, From: 40, To: 300, Rate: 2 * mib},
		},
	}
	curve := func(name string, start, end int64, class verdict.Class) summary.GPUCurve {
		return summary.GPUCurve{
			Name: name, StartBytes: new(start * mib), EndBytes: new(end * mib),
			Class: class, BytesPerMin: new(int64(120 * mib)),
		}
	}
	row := func(
		kind growth.Kind, component, function string, start, end int64,
	) summary.GPUBreakdownRow {
		return summary.GPUBreakdownRow{
			Kind: kind, GPU: "0", Function: function, Component: component,
			StartBytes: start * mib, EndBytes: end * mib,
		}
	}
	return summary.GPUMemory{
		Process: 42, Command: "python3", Verdict: summary.VerdictOf(v, summary.AxisSeconds),
		Judged: summary.GPUAllocated, Diagnosis: "retained-tensors",
		Curves: []summary.GPUCurve{
			curve(summary.GPUUsed, 1790, 2270, verdict.ClassLeak),
			curve(summary.GPUReserved, 1270, 1750, verdict.ClassLeak),
			curve(summary.GPUAllocated, 1120, 1600, verdict.ClassLeak),
			{Name: summary.GPUDriver, Class: verdict.ClassSuspected},
		},
		HeadroomBytes: new(int64(78 * gib)),
		Breakdown: []summary.GPUBreakdownRow{
			row(growth.KindCudaBlock, "train.py", "forward (/src/model.py:31)", 900, 900),
			row(growth.KindCudaBlock, "train.py", "remember (/src/train.py:19)", 120, 600),
			row(growth.KindCudaBeforeTracing, "", "", 100, 100),
			row(growth.KindCudaCached, "", "", 150, 150),
			row(growth.KindNotAttributed, "", "", 520, 520),
		},
		Suspects: []summary.Suspect{{
			Component: "train.py", Function: "remember (/src/train.py:19)", Bytes: 480 * mib,
			BytesPerMin: 120 * mib, Share: new(0.99), Explains: 1, Stacks: 1,
			Callers: []string{"main (/src/train.py:40)"},
		}},
		Accumulating: []summary.Accumulation{{
			Rank: 1, Function: "remember", Kind: growth.KindCudaBlock, Objects: 240,
			Bytes: 480 * mib, BytesPerMin: new(int64(120 * mib)), Share: 1,
			Trend: growth.TrendAccumulating, Component: "train.py",
			RateLow: new(int64(120 * mib)), RateHigh: new(int64(120 * mib)),
			AgeS: new(120.0), HistoryBytes: []int64{0, 120 * mib, 360 * mib, 600 * mib},
			Stack: []string{"remember (/src/train.py:19)", "main (/src/train.py:40)"},
		}},
	}
}

// onGPU gives a profile the sample types of GPU memory, and a stack that has gained there and
// nowhere else.
func onGPU(p *pprof.Profile) {
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: "device_space", Unit: "bytes"},
		&pprof.ValueType{Type: "device_objects", Unit: "count"},
		&pprof.ValueType{Type: "device_reserved_space", Unit: "bytes"})
	for _, s := range p.Sample {
		s.Value = append(s.Value, 0, 0, 0)
	}
	like := p.Sample[0]
	held := func(component string, values ...int64) {
		p.Sample = append(p.Sample, &pprof.Sample{
			Location: like.Location, Value: append(make([]int64, 5), values...),
			Label: map[string][]string{"component": {component}, "pid": {"42"}, "process": {"python3"}},
		})
	}
	held("train.py", 480*mib, 240, 0)
	held("torch", 0, 0, 500*mib)
}

// withoutNVML is gpuTrace where NVML reports nothing.
func withoutNVML(t testing.TB) *Trace {
	t.Helper()
	trace := gpuTrace(t)
	for i := range trace.Rows {
		trace.Rows[i].GPUUsed = growth.Unknown
	}
	d := &trace.Summary.GPUMemory[0]
	d.Reason, d.HeadroomBytes, d.Curves, d.Breakdown = growth.GPUNotListed, nil,
		d.Curves[1:], d.Breakdown[:4]
	return trace
}

// gpuRows are samples of a process with GPU memory.
func gpuRows(seconds int, of func(i int, s *growth.Sample)) []growth.Row {
	var list []growth.Row
	for i := range seconds + 1 {
		s := growth.UnknownSample()
		s.Elapsed, s.RSS = time.Duration(i)*time.Second, 100*mib
		of(i, &s)
		list = append(list, growth.Row{Sample: s, Tree: growth.Tree{Processes: 1, RSS: s.RSS}})
	}
	return list
}
