package summary

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// censusAt is a census in which a cache has so many pictures.
func censusAt(elapsed time.Duration, pictures float64, margin float64) *census.Result {
	return &census.Result{
		PID: 4242, Elapsed: elapsed, Python: "3.11", Share: 0.25,
		Types: []census.TypeCount{
			{Type: "PIL.Image.Image", Count: pictures, Bytes: 56 * pictures, Margin: margin},
			{Type: "dict", Count: 4000, Bytes: 900_000},
		},
		Blocks: 9000.4, Untyped: 120, UntypedBytes: 4096, Inconsistent: 1,
		Missing: census.MissingLarge,
		Tensors: census.Tensors{
			InCPPOnly: 1 << 20,
			Groups: []census.TensorGroup{
				{
					DType: "float32", Shape: []int64{64, 3}, Device: "cpu", Storages: int(pictures),
					Tensors: 2 * int(pictures), WithGradFn: 5, Bytes: 768 * int64(pictures),
					Stack: 0xfedcba9876543210,
				},
				{DType: "int64", Device: "cpu", Storages: 1, Tensors: 1, Bytes: 8},
			},
		},
		Took: 1500 * time.Millisecond, ReadBytes: 40 << 20,
	}
}

func TestObjectsOf(t *testing.T) {
	if got := ObjectsOf(censusAt(time.Minute, 1, 0), nil); got != nil {
		t.Errorf("without a census at the end: %+v", got)
	}

	before, after := censusAt(time.Minute, 100, 3), censusAt(3*time.Minute, 1022, 4)
	before.Share = 1
	before.Tensors.InCPPOnly = 1 << 18
	got := ObjectsOf(before, after)
	// (1022 - 100) / 2 min; the margins are 3 and 4, so the difference has a margin of 5.
	want := []TypeGrowth{{
		Type: "PIL.Image.Image", Before: 100, After: 1022, Bytes: 56 * 922, PerMin: 461,
		LowPerMin: 458.5, HighPerMin: 463.5,
	}}
	if !reflect.DeepEqual(got.Types, want) {
		t.Errorf("grown types are %+v", got.Types)
	}
	if len(got.Largest) != 2 || got.Largest[0].Count != 1022 || got.Largest[0].Margin != 4 ||
		*got.BeforeS != 60 || got.AfterS != 180 || got.Share != 0.25 || got.OwnS != 3 ||
		got.ReadBytes != 80<<20 || got.Inconsistent != 2 || got.Blocks != 9000 {
		t.Errorf("%+v", got)
	}
	tensors := got.Tensors
	if len(tensors) != 2 || *tensors[0].GrowthBytes != 768*922 || *tensors[1].GrowthBytes != 0 ||
		*tensors[0].GrowthTensors != 2*922 || *got.InCPPOnlyGrowthBytes != 3<<18 ||
		tensors[0].StackID != "fedcba9876543210" || tensors[1].StackID != "" ||
		tensors[1].Shape == nil || tensors[0].WithGradFn != 5 || *got.InCPPOnlyBytes != 1<<20 {
		t.Errorf("tensors are %+v", tensors)
	}

	t.Run("one census", func(t *testing.T) {
		after := censusAt(time.Minute, 7, 0)
		after.Tensors = census.Tensors{Unknown: census.NoTorch, InCPPOnly: -1}
		got := ObjectsOf(nil, after)
		if got.BeforeS != nil || len(got.Types) != 0 || len(got.Largest) != 2 ||
			got.InCPPOnlyBytes != nil || got.TensorsUnknown == "" {
			t.Errorf("%+v", got)
		}
	})

	// Whatever types a process invents, the file stays small and printable.
	t.Run("hostile", func(t *testing.T) {
		after := censusAt(time.Minute, 7, 0)
		for range 1000 {
			after.Types = append(after.Types, census.TypeCount{
				Type: "\x1b[2J" + strings.Repeat("x", 5000), Count: 1,
			})
		}
		got := ObjectsOf(nil, after)
		if len(got.Largest) != maxTypes {
			t.Errorf("%d types", len(got.Largest))
		}
		if name := got.Largest[10].Type; len(name) > 400 || strings.Contains(name, "\x1b") {
			t.Errorf("a type is %q", name)
		}
	})
}

func cacheSearch() keeper.Search {
	return keeper.Search{
		PID: 4242, Stack: 0xabc, Samples: 8,
		Paths: []keeper.Path{{
			Root: keeper.Root{
				Kind: keeper.RootGlobal, Module: "__main__", File: "/src/leaky_trainer.py",
				Name: "cache",
			},
			Links: []keeper.Link{
				{How: keeper.HowVariable, Type: "dict", Entries: 10_512, PerMinute: 461},
				{How: keeper.HowValue, Type: "PIL.Image.Image", Entries: -1},
				{How: keeper.HowAttribute, Name: "im", Type: "ImagingCore", Entries: -1},
				{How: keeper.HowField, TypeSize: 196_608, Entries: -1},
			},
			Samples: 6, Complete: true,
		}},
		Reason: keeper.ReasonGarbage, Garbage: 2, Collections: 0, Elapsed: 290 * time.Second,
		CollectionsTime: 280 * time.Second,
		Took:            2 * time.Second,
	}
}

func TestKeepersOf(t *testing.T) {
	search := cacheSearch()
	unknown := keeper.Search{
		PID: 4242, Type: "dict", Samples: 3, Reason: keeper.ReasonUnreferenced, Collections: -1,
	}
	got := KeepersOf([]keeper.Search{search, unknown})
	if len(got) != 2 || got[0].StackID != "abc" || got[0].Type != "" || *got[0].Collections != 0 ||
		got[0].AtS != 290 || got[0].OwnS != 2 || got[1].Paths == nil || got[1].Collections != nil {
		t.Fatalf("%+v", got)
	}
	path := got[0].Paths[0]
	if path.Share != 0.75 || path.Links[1].Entries != keeper.NoContainer {
		t.Errorf("%+v", path)
	}

	written := tracertest.Must(json.Marshal(path))(t)
	var back keeper.Path
	if err := json.Unmarshal(written, &back); err != nil || !reflect.DeepEqual(back, path) {
		t.Errorf("read back as %+v, want %+v: %v", back, path, err)
	}

	// Keys of a process's dicts may be anything: they are short, and printable.
	t.Run("hostile", func(t *testing.T) {
		search := cacheSearch()
		root, links := &search.Paths[0].Root, search.Paths[0].Links
		root.Name = strings.Repeat("é", 5000)
		links[1].Name = "'\x1b[31m" + strings.Repeat("k", 5000) + "'"
		for range 1000 {
			search.Paths[0].Links = append(search.Paths[0].Links, links[1])
			search.Paths = append(search.Paths, search.Paths[0])
		}
		got := KeepersOf([]keeper.Search{search})[0]
		name, key := got.Paths[0].Root.Name, got.Paths[0].Links[1].Name
		if len(got.Paths) != maxKeeperPaths || len(got.Paths[0].Links) > maxLinks ||
			name != strings.Repeat("é", 39)+"…" || len(key) > 4*maxKeyChars ||
			strings.Contains(key, "\x1b") {
			t.Errorf("%d paths, a variable %q, a key %q", len(got.Paths), name, key)
		}
	})
}

// TestSearchesOf has the readings of the first path of each answer, as a later trace reads them.
func TestSearchesOf(t *testing.T) {
	marked := keeper.Reading{Address: 1 << 46, Entries: 900}
	few := keeper.Reading{Address: 8, Entries: 3}
	for _, place := range keeper.MarkPlaces(900) {
		marked.Marks = append(marked.Marks, keeper.Mark{Place: place, Value: 1<<46 + uint64(place)})
	}
	link := func(r keeper.Reading) keeper.Link {
		return keeper.Link{Type: "list", Entries: r.Entries, Readings: []keeper.Reading{r}}
	}
	paths := []keeper.Path{
		{Samples: 12, Links: []keeper.Link{link(marked), link(few)}},
		{Samples: 4, Links: []keeper.Link{link(marked)}},
	}
	s := Summary{DurationS: 80, Keepers: KeepersOf([]keeper.Search{
		{PID: 7, Elapsed: 78 * time.Second, Samples: 16, Paths: paths},
		{PID: 8, Elapsed: 78 * time.Second, Samples: 16, Paths: paths},
		{PID: 7, Elapsed: 81 * time.Second, Samples: 16, Paths: paths}, // of the future: forged
	})}

	written, err := json.Marshal(s.Keepers)
	tracertest.NoError(t, err)
	var back Summary
	tracertest.NoError(t, json.Unmarshal(written, &back.Keepers))
	back.DurationS = s.DurationS
	got := SearchesOf(&back, 7)
	if len(got) != 1 || got[0].PID != 7 || got[0].Elapsed != 78*time.Second || len(got[0].Paths) != 2 {
		t.Fatalf("%+v", got)
	}
	first, second := got[0].Paths[0].Links, got[0].Paths[1].Links
	if !reflect.DeepEqual(first[0].Readings, []keeper.Reading{marked}) || first[1].Readings != nil ||
		second[0].Readings != nil {
		t.Errorf("%+v, %+v", first, second)
	}

	for name, forge := range map[string]func(*keeper.Reading){
		"one mark repeatedly": func(r *keeper.Reading) {
			r.Marks = slices.Repeat(r.Marks[:1], len(r.Marks))
		},
		"fewer than none": func(r *keeper.Reading) { r.Entries = math.MinInt64 },
	} {
		forged := Summary{DurationS: 80, Keepers: KeepersOf([]keeper.Search{
			{PID: 7, Elapsed: 78 * time.Second, Samples: 16, Paths: paths},
		})}
		of := &forged.Keepers[0].Paths[0].Links[0]
		of.Readings = slices.Clone(of.Readings)
		forge(&of.Readings[0])
		if got := SearchesOf(&forged, 7); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestKeeperStep(t *testing.T) {
	worker := keeper.Root{
		Kind: keeper.RootLocal, Module: "concurrent.futures.thread", Owner: "_worker",
		File: "/usr/lib/python3.11/concurrent/futures/thread.py", Line: 83, Name: "work_queue",
	}
	state := keeper.Root{Kind: keeper.RootGlobal, Module: "__main__", Name: "state"}
	link := func(how keeper.How, typ string, entries keeper.Entries, perMinute float64) keeper.Link {
		return keeper.Link{How: how, Type: typ, Entries: entries, PerMinute: perMinute}
	}
	last := link(keeper.HowItem, "tuple", keeper.NoContainer, 0)
	last.Repeated = true
	for name, c := range map[string]struct {
		root  keeper.Root
		links []keeper.Link
		want  StepCode
	}{
		"queue that is filled faster than it is emptied": {worker, []keeper.Link{
			link(keeper.HowVariable, "_queue.SimpleQueue", keeper.NoContainer, 0),
			link(keeper.HowField, "list", 980, 568),
		}, StepKeeperLimit},
		"what a call of a library has read": {worker, []keeper.Link{
			link(keeper.HowVariable, "xml.etree.ElementTree.Element", keeper.NoContainer, 0),
		}, StepKeeperCall},
		"nested tuples": {
			state, []keeper.Link{link(keeper.HowVariable, "tuple", 2, 0), last}, StepKeeperChain,
		},
		"nested tuples in a list that grows": {
			state, []keeper.Link{link(keeper.HowVariable, "list", 90, 60), last}, StepKeeperLimit,
		},
		"local variable of threads that pile up": {
			worker,
			[]keeper.Link{link(keeper.HowVariable, "bytearray", keeper.NoContainer, 0)},
			StepKeeperThreads,
		},
		"tuple": {
			state, []keeper.Link{link(keeper.HowVariable, "tuple", 2, 0)}, StepKeeperLimit,
		},
	} {
		var s Summary
		if c.want == StepKeeperThreads {
			s.Evidence = &Evidence{For: []conclude.Fact{{Code: conclude.FactThreads, PerMinute: 118}}}
		}
		path := keeper.Path{Root: c.root, Links: c.links, Share: 1}
		if got := s.keeperStep(&Keeper{Paths: []keeper.Path{path}}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestKeeperThatGains: a fact is rounded, and the growth of a container is not.
func TestKeeperThatGains(t *testing.T) {
	const perMinute = 14959.10512
	path := keeper.Path{
		Samples: 16, Links: []keeper.Link{{Type: "list", Entries: 900, PerMinute: perMinute, GrowthS: 60}},
	}
	s := &Summary{Process: Process{PID: 7}, Keepers: KeepersOf([]keeper.Search{
		{PID: 8, Type: "torch.Tensor", Samples: 16, Paths: []keeper.Path{path}},
		{PID: 7, Type: "torch.Tensor", Samples: 16, Paths: []keeper.Path{path}},
	})}
	s.Evidence = EvidenceOf(conclude.Evidence{
		For: []conclude.Fact{{Code: conclude.FactPins, PerMinute: perMinute}},
	})

	if got := s.MainKeeper(); got != &s.Keepers[1] {
		t.Errorf("%+v", got)
	}
	if got := KeeperThatGains(s, perMinute+1); got != nil {
		t.Errorf("another growth: %+v", got)
	}
}
