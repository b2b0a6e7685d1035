package profile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func roundTrip(t *testing.T, held []growth.Holding, info Info) *profile.Profile {
	t.Helper()
	var buf bytes.Buffer
	tracertest.NoError(t, Write(&buf, held, info))
	p := tracertest.Must(profile.ParseData(buf.Bytes()))(t)
	tracertest.NoError(t, p.CheckValid())
	return p
}

const hostTypes = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes resident_space/bytes"

func sampleTypes(p *profile.Profile) string {
	var types []string
	for _, v := range p.SampleType {
		types = append(types, v.Type+"/"+v.Unit)
	}
	return strings.Join(types, " ")
}

func TestBuild(t *testing.T) {
	p := roundTrip(t, holdings(), info())
	if got := sampleTypes(p); got != hostTypes {
		t.Errorf("sample types %s, want %s", got, hostTypes)
	}
	if p.DefaultSampleType != "resident_space" || p.PeriodType.Type != "space" ||
		p.PeriodType.Unit != "bytes" || p.Period != 524288 {
		t.Errorf("default %q, period %d %v", p.DefaultSampleType, p.Period, p.PeriodType)
	}
	if p.TimeNanos != info().Time.UnixNano() || p.DurationNanos != int64(5*time.Minute) {
		t.Errorf("time %d, duration %d", p.TimeNanos, p.DurationNanos)
	}
	if !slices.Equal(p.Comments, info().Comments) {
		t.Errorf("comments %q", p.Comments)
	}
	var values [][]int64
	for _, s := range p.Sample {
		values = append(values, s.Value)
	}
	want := [][]int64{
		{1000, 1573494, 1000, 1572864, 1576960},
		{2, 1048576, 2, 524288, 520192},
		{8, 275000, 8, 262144, 200704},
		{1, 4096, 1, 4096, 8192},
		{1, 2048, 1, 2048, 0},
		{1, 512, 1, 512, 4096},
		{4, 400, 4, 400, 0},
		{2, 300, 0, 0, 0},
		{0, 0, 0, 0, 987136},
		{0, 0, 0, 0, 319488},
		{0, 0, -10, -40960, -45056},
	}
	if !reflect.DeepEqual(values, want) {
		t.Errorf("values %v, want %v", values, want)
	}

	t.Run("labels", func(t *testing.T) {
		p := roundTrip(t, holdings(), info())
		first := p.Sample[0]
		if want := map[string][]string{
			"kind": {"heap"}, "component": {"trainer"}, "process": {"trainer"}, "pid": {"4242"},
		}; !reflect.DeepEqual(first.Label, want) {
			t.Errorf("labels %v, want %v", first.Label, want)
		}
		// In the order of inuse_space: 1572864/1000 ... 262144/7.6 ... 300/2 (allocated only), two
		// without objects, -40960/-10.
		want := []int64{1573, 262144, 34493, 4096, 2048, 512, 100, 150, 0, 0, 4096}
		for i, s := range p.Sample {
			if want[i] == 0 && len(s.NumLabel) > 0 {
				t.Errorf("sample %d: bytes %v of no objects", i, s.NumLabel)
			}
			if want[i] != 0 &&
				(!slices.Equal(s.NumLabel["bytes"], want[i:i+1]) ||
					!slices.Equal(s.NumUnit["bytes"], []string{"bytes"})) {
				t.Errorf("sample %d: bytes %v %v, want %d bytes", i, s.NumLabel["bytes"],
					s.NumUnit["bytes"], want[i])
			}
		}
		if lost := p.Sample[4]; len(lost.Label["pid"]) != 0 || len(lost.Label["process"]) != 0 {
			t.Errorf("labels of a stack without a process: %v", lost.Label)
		}
	})

	t.Run("shared locations", func(t *testing.T) {
		p := roundTrip(t, holdings(), info())
		if len(p.Mapping) != 2 || p.Mapping[0].File != trainer.Path {
			t.Fatalf("mappings %v, want the executable and libc", p.Mapping)
		}
		for i, module := range []*growth.Module{trainer, libc} {
			m := p.Mapping[i]
			got := growth.Module{
				Path: m.File, BuildID: m.BuildID, Start: m.Start, Limit: m.Limit, Offset: m.Offset,
			}
			if got != *module || !m.HasFunctions || m.HasLineNumbers != (module == trainer) ||
				m.HasFilenames != (module == trainer) {
				t.Errorf("mapping %+v, want %+v", m, module)
			}
		}
		if leak, brk := p.Sample[0], p.Sample[7]; !slices.Equal(leak.Location, brk.Location) {
			t.Error("two samples of one stack do not share their locations")
		}
		// malloc, leak_block, main, calloc, <module>, mmap64, map_arena, cache_trim, operator new,
		// reserve, deep, cut, lost, the main heap, its free part, the file.
		if len(p.Location) != 16 || len(p.Function) != 16 {
			t.Errorf("%d locations, %d functions, want 16 of each", len(p.Location),
				len(p.Function))
		}
		if l := p.Sample[0].Location[1]; l.Address != 0x401100 || l.Line[0].Line != 12 ||
			l.Line[0].Function.Name != "leak_block" ||
			l.Line[0].Function.Filename != "/src/trainer.c" {
			t.Errorf("leaf's caller: %+v", l)
		}
	})

	t.Run("executable", func(t *testing.T) {
		elsewhere := info()
		elsewhere.Executable = "/usr/bin/python3"
		if p := roundTrip(t, holdings(), elsewhere); p.Mapping[0].File != "/usr/bin/python3" ||
			len(p.Mapping) != 3 {
			t.Errorf("mappings %v", p.Mapping)
		}
		empty := roundTrip(t, nil, Info{})
		if len(empty.Mapping) != 0 || empty.TimeNanos != 0 || len(empty.Sample) != 0 {
			t.Errorf("empty profile: %v", empty)
		}
	})

	// The kernel cuts command names after 15 bytes, be it in the middle of a character.
	t.Run("invalid UTF-8", func(t *testing.T) {
		cut := info()
		cut.Processes = map[int]string{4242: "train\xc3"}
		p := roundTrip(t, holdings(), cut)
		if got := p.Sample[0].Label["process"][0]; got != "train\uFFFD" {
			t.Errorf("process %q", got)
		}
	})

	t.Run("GPU memory", func(t *testing.T) {
		onGPU := func(
			kind growth.Kind, gpu, function string, bytes, attributed int64,
		) growth.Holding {
			return growth.Holding{
				Stack: growth.NamedStack(4242, "", "cuMemAlloc_v2", function, "main"), Kind: kind,
				GPU: gpu, InuseObjects: float64(bytes / 100), InuseBytes: bytes,
				GPUBytes: attributed, AllocObjects: 9, AllocBytes: 9000,
			}
		}
		onGPUs := []growth.Holding{
			onGPU(growth.KindCudaBlock, "0", "keep", 1000, 1000),
			onGPU(growth.KindCudaBlock, "1", "batch", 700, 700),
			onGPU(growth.KindCudaSegment, "0", "raw_alloc", 6000, 0), // torch's: in no breakdown
			onGPU(growth.KindCudaSegment, "0", "ncclInit", 1200, 1200),
			{
				Stack: growth.NamedStack(4242, "[gpu: not attributed]"),
				Kind:  growth.KindNotAttributed, GPUBytes: 2800,
			},
		}
		p := roundTrip(t, slices.Concat(holdings(), onGPUs), info())
		want := hostTypes + " device_objects/count device_space/bytes device_reserved_space/bytes"
		if got := sampleTypes(p); got != want {
			t.Errorf("sample types %s", got)
		}
		if p.DefaultSampleType != "resident_space" {
			t.Errorf("default %s", p.DefaultSampleType)
		}

		var sums [8]int64
		for _, sample := range p.Sample {
			device := strings.HasPrefix(sample.Label["kind"][0], "cuda") ||
				sample.Label["kind"][0] == "not-attributed"
			for i, v := range sample.Value {
				sums[i] += v
				if v != 0 && device != (i >= 5) {
					t.Errorf("%v: value %d is %d", sample.Label, i, v)
				}
			}
		}
		var rss int64
		for _, h := range holdings() {
			rss += h.ResidentBytes
		}
		// 10 and 7 blocks, and 12 of NCCL's.
		if want := [3]int64{29, 5700, 7200}; sums[4] != rss || [3]int64(sums[5:]) != want {
			t.Errorf("sums %v, want %d and %v", sums, rss, want)
		}

		i := slices.IndexFunc(p.Sample, func(s *profile.Sample) bool { return s.Value[6] == 700 })
		if gpu := p.Sample[i].Label["gpu"]; !slices.Equal(gpu, []string{"1"}) {
			t.Errorf("GPU %v", gpu)
		}
		tracertest.NoError(t, DropFrames(p))
		for _, sample := range p.Sample {
			if name := sample.Location[0].Line[0].Function.Name; name == "cuMemAlloc_v2" {
				t.Errorf("the driver is the leaf of %v", sample.Label)
			}
		}
	})
}

func TestMeanSize(t *testing.T) {
	for _, test := range []struct {
		name    string
		holding growth.Holding
		want    int64
	}{
		{"fewer objects, more bytes", growth.Holding{InuseObjects: -1, InuseBytes: 100}, 0},
		{
			"what cancelling left over",
			growth.Holding{InuseObjects: 1e-12, InuseBytes: 1, AllocObjects: 2, AllocBytes: 50},
			25,
		},
	} {
		if got := meanSize(test.holding); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// pprofText runs go tool pprof, which is another reader than the library that wrote the file.
func pprofText(t *testing.T, arguments ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "pprof"}, arguments...)...)
	cmd.Env = append(os.Environ(), "TZ=UTC", "PPROF_TMPDIR="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("go tool pprof %v: %v\n%s", arguments, err, stderr.Bytes())
	}
	return out
}

func profileFile(t *testing.T, held []growth.Holding) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "growth.pb.gz")
	file := tracertest.Must(os.Create(path))(t)
	tracertest.NoError(t, Write(file, held, info()))
	tracertest.NoError(t, file.Close())
	return path
}

func TestPprof(t *testing.T) {
	// The callers of the allocator represent their allocations; a function without a caller
	// represents itself. Without a sample type, values are resident bytes.
	t.Run("top", func(t *testing.T) {
		path := profileFile(t, holdings())
		exporttest.Golden(t, "top.txt", pprofText(t, "-top", "-unit=B", "-nodefraction=0", path))
		exporttest.Golden(t, "top_inuse.txt",
			pprofText(t, "-top", "-unit=B", "-nodefraction=0", "-sample_index=inuse_space", path))
	})

	t.Run("traces", func(t *testing.T) {
		exporttest.Golden(t, "traces.txt", pprofText(t, "-traces", "-unit=B", profileFile(t, holdings())))
	})
}

func TestStackText(t *testing.T) {
	in := func(module *growth.Module, functions ...string) (frames []growth.Frame) {
		for _, function := range functions {
			frames = append(frames, growth.Frame{Function: function, Module: module})
		}
		return frames
	}
	for name, test := range map[string]struct {
		frames    []growth.Frame
		truncated string
		want      []string
	}{
		"source":              {[]growth.Frame{mallocF, mainFn}, "", []string{"main (/src/trainer.c:40)"}},
		"file without line":   {[]growth.Frame{{Function: "f", File: "a.c"}}, "", []string{"f (a.c)"}},
		"module":              {in(trainer, "f"), "", []string{"f (/opt/job/trainer)"}},
		"name":                {in(nil, "f"), "", []string{"f"}},
		"allocator alone":     {in(nil, "mmap", "malloc"), "", []string{"mmap", "malloc"}},
		"allocator's insides": {in(nil, "mmap", "sysmalloc", "malloc", "f"), "", []string{"f"}},
		"cut":                 {in(nil, "malloc"), "why", []string{"[truncated: why]"}},
		"lost":                {nil, "stack map full", []string{"[stack not kept: stack map full]"}},
		"unknown":             {nil, "", []string{"[stack unknown]"}},
	} {
		stack := growth.Stack{Frames: test.frames, Truncated: test.truncated}
		if got := StackText(&stack); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
