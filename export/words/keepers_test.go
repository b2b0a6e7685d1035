package words

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// theStack is the stack of the first suspect.
const theStack = 0xabc

// pathTo is a path from a global to pictures in a dict, which explains so many of eight samples.
func pathTo(name string, samples int) keeper.Path {
	return keeper.Path{
		Root: keeper.Root{
			Kind: keeper.RootGlobal, Module: "__main__", File: "/src/leaky_trainer.py", Name: name,
		},
		Links: []keeper.Link{
			{How: keeper.HowVariable, Type: "dict", Entries: 10_512, PerMinute: 461},
			{How: keeper.HowValue, Type: "PIL.Image.Image", Entries: -1},
			{How: keeper.HowAttribute, Name: "im", Type: "ImagingCore", Entries: -1},
		},
		Samples: samples, Complete: true,
	}
}

// withSearch is the real trace of a trainer that keeps pictures, with a search.
func withSearch(t *testing.T, search keeper.Search) *summary.Summary {
	t.Helper()
	s := readSummary(t, "testdata/results/suspected.json")
	s.Suspects[0].StackIDs = []string{"1", "abc"}
	search.PID, search.Stack = s.Process.PID, theStack
	s.Keepers = summary.KeepersOf([]keeper.Search{search})
	return s
}

func TestKeptBy(t *testing.T) {
	const (
		where = "leaky_trainer.py:47  augment()   <- your code; calls Image.resize (Image.py:2192)"
		call  = "leaky_trainer.py:62  load_batch()   <- caller"
		cache = "kept by leaky_trainer.cache (dict, 10,512 entries, +461/min) -> Image"
		find  = "find the list, dict or cache that keeps what leaky_trainer.py:47 allocates"
	)
	static := pathTo("table", 8)
	static.Root = keeper.Root{
		Kind: keeper.RootStatic, Module: "/usr/lib/libfoo.so", Name: "table", Offset: 16,
	}
	static.Links = []keeper.Link{{How: keeper.HowField, TypeSize: 48, Entries: -1}}
	cached := pathTo("", 8)
	cached.Root = keeper.Root{Kind: keeper.RootCache, Module: "train", Owner: "load"}
	local := pathTo("batch", 8)
	local.Root = keeper.Root{
		Kind: keeper.RootLocal, Module: "train", File: "/src/train.py", Line: 40, Owner: "train",
		Name: "batch",
	}
	local.Links = local.Links[1:]
	inLibrary := pathTo("dataset", 8)
	inLibrary.Root = keeper.Root{
		Kind: keeper.RootLocal, Module: "torch.utils.data._utils.worker", Owner: "_worker_loop",
		File: "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", Line: 302,
		Name: "dataset",
	}
	decoded := keeper.Link{
		How: keeper.HowAttribute, Name: "decoded_samples", Type: "dict", Entries: 10_512, PerMinute: 461,
	}
	inLibrary.Links = []keeper.Link{
		{How: keeper.HowVariable, Type: "Samples", Entries: -1},
		decoded,
		{How: keeper.HowValue, Type: "PIL.Image.Image", Entries: -1},
	}
	registry := pathTo("_registry", 8)
	registry.Root = keeper.Root{
		Kind: keeper.RootClass, Module: "weakref", File: "/usr/lib/python3.11/weakref.py",
		Owner: "finalize", Name: "_registry",
	}
	errors := pathTo("errors", 8)
	errors.Links = append(errors.Links, keeper.Link{Type: "traceback", Entries: -1})

	const (
		limit   = "give leaky_trainer.cache a limit, or remove entries when done"
		collect = "call gc.collect() now and then, or break the cycles of references"
	)
	one := func(path keeper.Path) keeper.Search {
		return keeper.Search{Samples: 8, Paths: []keeper.Path{path}}
	}
	without := func(reason keeper.Reason, few ...keeper.Path) keeper.Search {
		return keeper.Search{Samples: 8, Paths: few, Reason: reason}
	}
	garbage := func(collections int) keeper.Search {
		return keeper.Search{
			Samples: 8, Garbage: 8, Reason: keeper.ReasonGarbage, Collections: collections,
			CollectionsTime: 5 * time.Minute,
		}
	}
	most, halfway := one(pathTo("cache", 6)), one(pathTo("cache", 8))
	most.Reason = keeper.ReasonUnreferenced
	halfway.Elapsed, halfway.IsEarlier = 25*time.Second, true
	two := one(pathTo("cache", 8))
	two.Paths = append(two.Paths, pathTo("seen", 7), pathTo("x", 6))

	for name, c := range map[string]struct {
		of   keeper.Search
		kept string // the last line of WHERE
		next string
	}{
		"all samples":  {one(pathTo("cache", 8)), cache, limit},
		"most samples": {most, cache + ", in 6 of 8 samples", limit},
		"half-way":     {halfway, "at 25s: " + cache, limit},
		"few samples": {
			without(keeper.ReasonNative, pathTo("cache", 3)),
			"kept by: not found (by memory of native code without a name)", find,
		},
		"none": {
			without(keeper.ReasonUnreferenced), "kept by: not found (no reference was found)", find,
		},
		"unread": {
			without(keeper.ReasonUnsupported),
			"kept by: not found (the objects of this Python cannot be read)", find,
		},
		"garbage": {
			garbage(0), "garbage: waits for gc; generation 2 has not run in 5m of tracing", collect,
		},
		"garbage, collected": {
			garbage(3), "garbage: waits for gc; generation 2 has run 3 times in 5m of tracing", collect,
		},
		"garbage, unknown collections": {garbage(-1), "garbage: waits for gc", collect},
		"static variable": {
			one(static), "kept by libfoo.so: table+0x10 (buffer)",
			"find what adds to libfoo.so: table+0x10 and removes nothing",
		},
		"lru_cache": {
			one(cached), "kept by lru_cache of load() (dict, 10,512 entries, +461/min) -> Image",
			"give the lru_cache of load() a maxsize, or call its cache_clear()",
		},
		"local variable": {
			one(local), "kept by local batch.im of train() (train.py:40) (ImagingCore)",
			"clear local batch.im of train() (train.py:40) when done",
		},
		"attribute of an object that a library's function has": {
			one(inLibrary),
			"kept by local dataset.decoded_samples of _worker_loop() (dict, 10,512 entries, +461/min)",
			"limit local dataset.decoded_samples of _worker_loop() (worker.py:302)",
		},
		"a library's variable": {
			one(registry),
			"kept by weakref.finalize._registry (dict, 10,512 entries, +461/min) -> Image",
			"find what adds to weakref.finalize._registry and removes nothing",
		},
		"traceback": {
			one(errors), strings.Replace(cache, "cache", "errors", 1),
			"keep the texts of exceptions in leaky_trainer.errors, not their tracebacks",
		},
		"two paths": {
			two, "also kept by leaky_trainer.seen (dict, 10,512 entries, +461/min), in 7 of 8 samples",
			limit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := ResultOf(withSearch(t, c.of), Place{Dir: "dir", Sudo: true})
			mustFit(t, result)
			want := []string{where, call, c.kept}
			if len(c.of.Paths) > 1 {
				want[1] = cache
			}
			mustBe(t, result.Block(LabelWhere), want, LabelWhere)
			mustBe(t, result.Block(LabelDoNext)[0], c.next, LabelDoNext)
		})
	}

	t.Run("losses with their graph", func(t *testing.T) {
		s := withSearch(t, keeper.Search{Samples: 8, Paths: []keeper.Path{pathTo("losses", 8)}})
		s.Suspects[0].Component = "autograd"
		const want = "keep loss.item() or tensor.detach() in leaky_trainer.losses"
		mustBe(t, ResultOf(s, Place{}).Block(LabelDoNext)[0], want)

		kept := pathTo("losses", 8)
		kept.Links[1].Type = "torch.Tensor"
		s = withSearch(t, keeper.Search{Samples: 8, Paths: []keeper.Path{kept}})
		grown, more := int64(4000), 8
		s.Objects = &summary.Objects{Tensors: []summary.TensorGroup{
			{
				DType: "float32", Shape: []int64{2, 3}, Device: "cpu", WithGradFn: 7,
				GrowthBytes: &grown, GrowthTensors: &more,
			},
		}}
		mustBe(t, ResultOf(s, Place{}).Block(LabelDoNext)[0], want)
		s.Objects.Tensors[0].WithGradFn = 1 // as the tensor of the step under way
		if got := ResultOf(s, Place{}).Block(LabelDoNext)[0]; got == want {
			t.Errorf("%q, though few of those that grow keep their graph", got)
		}
		s.Objects.Tensors[0].WithGradFn = 7
		mustBe(t, Tensor(s.Objects.Tensors[0]), "float32 [2, 3] cpu, 7 with their graph")
	})

	// Names of any length and contents fit.
	t.Run("hostile", func(t *testing.T) {
		path := pathTo(strings.Repeat("é\n", 500), 8)
		path.Root.Module = strings.Repeat("\x1b[31m", 500)
		for _, kind := range []keeper.RootKind{
			keeper.RootGlobal, keeper.RootClass, keeper.RootLocal, keeper.RootCache, keeper.RootStatic,
			keeper.RootThread, keeper.RootCycle, "",
		} {
			path.Root.Kind, path.Root.Owner = kind, strings.Repeat("long.", 500)
			s := withSearch(t, keeper.Search{Samples: 9, Paths: []keeper.Path{path, path}})
			mustFit(t, ResultOf(s, Place{Dir: "dir"}))
		}
	})
}

// Of several call sites the keeper of the first is shown, where there is room.
func TestKeptByOfSeveral(t *testing.T) {
	s := readSummary(t, "testdata/results/two.json")
	s.Suspects[0].StackIDs = []string{"abc"}
	s.Keepers = summary.KeepersOf([]keeper.Search{
		{
			PID: s.Process.PID, Stack: theStack, Samples: 4,
			Paths: []keeper.Path{pathTo("images", 4)},
		},
	})
	result := ResultOf(s, Place{Dir: "dir"})
	mustFit(t, result)
	want := []string{
		" 65%  two_run.py:5  load_images()   <- your code",
		"      kept by leaky_trainer.images (dict, 10,512 entries, +461/min) -> Image",
		" 27%  two_run.py:7  make_labels()   <- your code",
	}
	mustBe(t, result.Block(LabelWhere), want)
}

// mustKeep wants the variable that keeps growth in the last line of WHERE, and in the first step.
func mustKeep(t *testing.T, s *summary.Summary, begin, variable string) Result {
	t.Helper()
	result := ResultOf(s, Place{Dir: "dir"})
	mustFit(t, result)
	where, next := result.Block(LabelWhere), result.Block(LabelDoNext)
	if !strings.HasPrefix(where[len(where)-1], begin+" "+variable+" (dict, ") {
		t.Errorf("WHERE is %q", where)
	}
	look := "does len(" + variable + ") have to grow? If not, give it a limit"
	if !strings.HasPrefix(next[0], look) {
		t.Errorf("DO NEXT is %q", next)
	}
	return result
}

// Small Python objects have types.
func TestGrownTypes(t *testing.T) {
	at := func(minutes int, objects float64) *census.Result {
		types := []census.TypeCount{
			{Type: "dict", Count: 10 * objects, Bytes: 2000 * objects},
			{Type: "metrics.Record", Count: objects, Bytes: 500 * objects},
			{Type: "str", Count: objects / 10, Bytes: 5 * objects},
			{Type: "float", Count: objects / 10, Bytes: 2 * objects},
		}
		return &census.Result{PID: 1, Elapsed: time.Duration(minutes) * time.Minute, Types: types}
	}
	s := readSummary(t, "testdata/results/objects.json")
	s.Objects = summary.ObjectsOf(at(1, 0), at(3, 1002))
	pid := s.Process.PID
	s.Keepers = summary.KeepersOf([]keeper.Search{
		{PID: pid, Type: "metrics.Record", Samples: 8, Paths: []keeper.Path{pathTo("x", 8)}},
		{PID: pid, Type: "dict", Samples: 8, Paths: []keeper.Path{pathTo("history", 8)}},
	})
	result := mustKeep(t, s, "kept by", "leaky_trainer.history")
	const want = "small Python objects: dict +5,010/min, metrics.Record +501/min, 97% of the growth"
	mustBe(t, result.Block(LabelWho)[0], want, LabelWho)
}

// Tensors that censuses count have their keeper, also where a call site explains a little.
func TestTensorsText(t *testing.T) {
	s := readSummary(t, "testdata/results/objects.json")
	const share = 0.88
	s.Diagnoses = []summary.Diagnosis{{
		Process: s.Process.PID, Cause: diagnosis.Tensors, Share: share, Confidence: diagnosis.Medium,
	}}
	little, gained := 0.02, int64(15_000_000)
	s.Suspects = s.Suspects[:1]
	s.Suspects[0].Share, s.Suspects[0].Explains = &little, little
	s.Objects = &summary.Objects{
		Share: 1, Types: []summary.TypeGrowth{
			{Type: "function", PerMin: 141, Bytes: 47_840}, {Type: "torch.Tensor", PerMin: 141, Bytes: 23_920},
		},
		Tensors: []summary.TensorGroup{{
			DType: "float32", Shape: []int64{128, 100}, Device: "cpu", Storages: 670, Tensors: 670,
			Bytes: 34_000_000, GrowthBytes: &gained,
		}},
	}
	other, kept := pathTo("other", 8), pathTo("hooks", 8)
	s.Keepers = summary.KeepersOf([]keeper.Search{
		{PID: s.Process.PID, Type: "function", Samples: 8, Paths: []keeper.Path{other}},
		{PID: s.Process.PID, Type: "torch.Tensor", Samples: 8, Paths: []keeper.Path{kept}},
	})
	result := mustKeep(t, s, "kept by", "leaky_trainer.hooks")
	const who = "CPU tensors that are kept, float32 [128, 100], 88% of the growth"
	mustBe(t, result.Block(LabelWho)[0], who, LabelWho)
}

// Growth without a cause: a container that gains entries may keep it, and is no more than beside it.
func TestGainsInGrowth(t *testing.T) {
	s := readSummary(t, "testdata/results/objects.json")
	s.Diagnoses = []summary.Diagnosis{{
		Process: s.Process.PID, Cause: diagnosis.Undecided, Share: 1,
	}}
	s.Suspects, s.Objects = nil, nil
	s.Evidence = &summary.Evidence{
		For: []conclude.Fact{{Code: conclude.FactGains, PerMinute: 461, Length: 3}},
	}
	s.Keepers = summary.KeepersOf([]keeper.Search{{
		PID: s.Process.PID, Type: "torch.Tensor", Samples: 8, Paths: []keeper.Path{pathTo("losses", 8)},
	}})
	result := mustKeep(t, s, "objects beside it are kept by", "leaky_trainer.losses")
	for _, note := range result.Block(LabelNote) {
		if strings.Contains(note, "meant to grow") {
			t.Errorf("NOTE says it again: %q", note)
		}
	}
}

// A census says which objects and tensors it lacks.
func TestObjectsNotes(t *testing.T) {
	const torch = "tensors are not known: "
	of := func(why census.TensorsUnknown, limits census.TensorLimits) summary.Objects {
		return summary.Objects{Share: 1, TensorsUnknown: why, TensorLimits: limits}
	}
	for want, o := range map[string]summary.Objects{
		"": of(census.NoTorch, census.TensorLimits{}),
		torch + "only a part of the memory of small objects was read": of(census.PartRead,
			census.TensorLimits{}),
		torch + "there are more than 9": of(census.TooMany, census.TensorLimits{Most: 9}),
		torch + "PyTorch of a layout that is not known: the likeliest one fits 3 of 9 tensors": of(
			census.UnknownLayout, census.TensorLimits{Fitting: 3, Checked: 9}),
		"not counted: objects in memory for which there was no time": {
			Share: 1, Missing: census.MissingForTime,
		},
	} {
		if got := strings.Join(ObjectsNotes(&o), "; "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Whatever a search has found, the details say it.
func TestKeeperLines(t *testing.T) {
	for reason, want := range map[keeper.Reason]string{
		keeper.ReasonBudget: "not found: the search has used up its CPU time",
		keeper.ReasonMany:   "no common keeper: each is kept by another variable",
	} {
		k := summary.KeepersOf([]keeper.Search{{Samples: 3, Reason: reason}})[0]
		mustBe(t, KeeperLines(k), []string{want}, reason)
	}
	several := pathTo("seen", 5)
	several.Complete = false
	k := summary.KeepersOf([]keeper.Search{{
		Samples: 8, Paths: []keeper.Path{pathTo("cache", 6), several}, Garbage: 1,
		Reason: keeper.ReasonBudget, Collections: 2, CollectionsTime: time.Minute,
	}})[0]
	want := []string{
		"6 of 8: leaky_trainer.cache (dict, 10,512 entries, +461/min) -> Image -> ImagingCore; " +
			"no other reference",
		"5 of 8: leaky_trainer.seen (dict, 10,512 entries, +461/min) -> Image -> ImagingCore",
		"1 of 8: garbage: waits for gc; generation 2 has run 2 times in 1m of tracing",
		"of the others not found: the search has used up its CPU time",
	}
	mustBe(t, KeeperLines(k), want)
}

// Whether anything refers to the objects is said where a sweep was made: its finding, or the premise
// that fails.
func TestSweepLines(t *testing.T) {
	for want, s := range map[string]keeper.Search{
		"not found: nothing that was searched refers to them": {Samples: 3},
		"nothing in the process refers to 2 of 3, by one search": {
			Samples: 3, Sweep: keeper.Sweep{Lost: []uint64{1, 2}, Samples: 3},
		},
		"lost: nothing in the process refers to 15 of 16, proven by two searches": {
			Samples: 16, Proof: keeper.Proof{Lost: 15, Of: 16},
		},
		"not known whether anything refers to them: 3.00 GiB are swapped out": {
			Samples: 3, Sweep: keeper.Sweep{Premise: keeper.PremiseSwapped, Bytes: 3 << 30},
		},
		"not known whether anything refers to them: the references of V8 cannot be read": {
			Samples: 3, Sweep: keeper.Sweep{Premise: keeper.PremiseRuntime, Runtime: "V8"},
		},
		"not known whether anything refers to them: the registers of its threads could not be read": {
			Samples: 3, Sweep: keeper.Sweep{Premise: keeper.PremiseRegisters},
		},
		"not known whether anything refers to them: the CPU time was used up": {
			Samples: 3, Sweep: keeper.Sweep{
				Premise: keeper.PremiseBudget, Lost: []uint64{1, 2, 3}, Samples: 3,
			},
		},
	} {
		s.Reason = keeper.ReasonUnreferenced
		mustBe(t, KeeperLines(summary.KeepersOf([]keeper.Search{s})[0]), []string{want})
	}
}

// Each reason and each kind of root has a row in the documentation, and each reason its words. The
// schema has them all: it is made of the constants.
func TestKeeperConstants(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reference/schema/summary.json")
	tracertest.NoError(t, err)
	type definition struct {
		Properties map[string]struct{ Enum []string }
	}
	var schema struct {
		Definitions map[string]definition `json:"$defs"`
	}
	tracertest.NoError(t, json.Unmarshal(raw, &schema))
	rows := make(map[string]string)
	for _, file := range []string{"reference/files.md", "guides/keepers.md"} {
		raw, err := os.ReadFile("../../docs/" + file)
		tracertest.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			if strings.HasPrefix(line, "| ") {
				rows[file] += line
			}
		}
	}

	reasons := schema.Definitions["Keeper"].Properties["reason"].Enum
	kinds := schema.Definitions["Root"].Properties["kind"].Enum
	if len(reasons) < 2 || len(kinds) < 2 {
		t.Fatalf("reasons %q and kinds %q of the schema", reasons, kinds)
	}
	for _, name := range append(reasons, kinds...) {
		if name != "" && !strings.Contains(rows["reference/files.md"], "`"+name+"`") {
			t.Errorf("files.md has no row for %q", name)
		}
	}
	for _, name := range reasons {
		reason := keeper.Reason(name)
		text := keeperReasons[reason]
		switch {
		case reason == keeper.ReasonNone, reason == keeper.ReasonGarbage: // has a section of its own
		case text == "":
			t.Errorf("reason %s has no words", reason)
		case !strings.Contains(rows["guides/keepers.md"], "| "+text+" |"):
			t.Errorf("keepers.md has no row for %q", text)
		}
	}
	if len(keeperReasons) != len(reasons)-1 { // ReasonNone has none
		t.Errorf("%d reasons have words, of %d", len(keeperReasons), len(reasons)-1)
	}
}

// The documentation has the steps of each sort of keeper.
func TestKeeperSteps(t *testing.T) {
	docs, err := os.ReadFile("../../docs/guides/keepers.md")
	tracertest.NoError(t, err)
	var texts []string
	for _, wait := range waits {
		texts = append(texts, wait.step)
	}
	for _, steps := range keeperSteps {
		texts = append(texts, strings.ReplaceAll(steps[0], "%s", "X"))
	}
	for _, text := range texts {
		if !strings.Contains(string(docs), text) {
			t.Errorf("the documentation lacks %q", text)
		}
	}
}
