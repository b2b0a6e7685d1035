package words

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth/keeper"
)

func link(how keeper.How, name, typeName string) keeper.Link {
	return keeper.Link{How: how, Name: name, Type: typeName, Entries: -1}
}

func container(how keeper.How, name, typeName string, entries int64, rate float64) keeper.Link {
	return keeper.Link{How: how, Name: name, Type: typeName, Entries: keeper.Entries(entries), PerMinute: rate}
}

func TestKeeperPath(t *testing.T) {
	global := func(name string) keeper.Root {
		return keeper.Root{
			Kind: keeper.RootGlobal, Module: "train", Name: name, File: "/src/train.py",
		}
	}
	main := keeper.Root{
		Kind: keeper.RootGlobal, Module: "__main__", Name: "cache", File: "/src/leaky_trainer.py",
	}
	image := link(keeper.HowValue, "", "PIL.Image.Image")
	in := func(kind keeper.RootKind, name, owner string) keeper.Root {
		return keeper.Root{
			Kind: kind, Module: "train", File: "/src/train.py", Line: 40, Name: name, Owner: owner,
		}
	}
	list := container(keeper.HowVariable, "", "list", 300, 60)
	node := link(keeper.HowAttribute, "next", "train.Node")
	node.Repeated = true
	brief := container(keeper.HowVariable, "", "dict", 10_512, 461)
	brief.GrowthS = 5.3

	for _, c := range []struct {
		root  keeper.Root
		links []keeper.Link
		want  string
	}{
		{
			main,
			[]keeper.Link{
				container(keeper.HowVariable, "", "dict", 10_512, 461), image,
				link(keeper.HowAttribute, "im", "ImagingCore"),
				{How: keeper.HowField, TypeSize: 4096, Entries: -1},
			},
			"leaky_trainer.cache (dict, 10,512 entries, +461/min) -> Image -> ImagingCore -> buffer",
		},
		{ // a rate by the minute would claim more than seconds show
			main,
			[]keeper.Link{brief, image},
			"leaky_trainer.cache (dict, 10,512 entries, +41 in 5.3s) -> Image",
		},
		{ // constant attributes and keys lead to the container that grows
			global("run"),
			[]keeper.Link{
				link(keeper.HowVariable, "", "train.Run"),
				container(keeper.HowAttribute, "history", "dict", 2, 0),
				container(keeper.HowValue, "'loss'", "list", 512, 60.4),
				link(keeper.HowItem, "", "torch.Tensor"),
			},
			"train.run.history['loss'] (list, 512 entries, +60/min) -> Tensor",
		},
		{ // so do differing ones
			global("groups"),
			[]keeper.Link{
				container(keeper.HowVariable, "", "dict", 5, 0),
				container(keeper.HowValue, "", "list", 1, 0.5),
				link(keeper.HowItem, "", "bytes"),
			},
			"train.groups[...] (list, 1 entry, +0.5/min) -> bytes",
		},
		{ // where none is known to grow, they lead to the first whose entries differ
			global("groups"),
			[]keeper.Link{
				container(keeper.HowVariable, "", "dict", 5, 0),
				container(keeper.HowValue, "", "list", 9, 0),
				link(keeper.HowItem, "", "bytes"),
			},
			"train.groups (dict, 5 entries) -> list -> bytes",
		},
		{
			global("seen"),
			[]keeper.Link{
				container(keeper.HowVariable, "", "set", 5, 1),
				link(keeper.HowElement, "", "tuple"),
			},
			"train.seen (set, 5 entries, +1.0/min) -> tuple",
		},
		{
			global("sets"),
			[]keeper.Link{
				container(keeper.HowVariable, "", "set", 5, 0),
				container(keeper.HowElement, "", "frozenset", 5, 3),
			},
			"train.sets{...} (frozenset, 5 entries, +3.0/min)",
		},
		{
			global("head"),
			[]keeper.Link{
				link(keeper.HowVariable, "", "train.Node"), node,
				link(keeper.HowAttribute, "payload", "bytes"),
			},
			"train.head (Node) -> Node -> ... -> bytes",
		},
		{
			global("text"),
			[]keeper.Link{link(keeper.HowVariable, "", "bytearray")},
			"train.text (bytearray)",
		},
		{global("text"), nil, "train.text"},
		{
			in(keeper.RootClass, "registry", "Outer.Model"),
			[]keeper.Link{list},
			"train.Outer.Model.registry (list, 300 entries, +60/min)",
		},
		{in(keeper.RootLocal, "batch", "train"), nil, "local batch of train() (train.py:40)"},
		{
			in(keeper.RootLocal, "self", "Run.train"),
			[]keeper.Link{
				link(keeper.HowVariable, "", "train.Run"),
				container(keeper.HowAttribute, "seen", "list", 300, 60),
			},
			"local self.seen of Run.train() (train.py:40) (list, 300 entries, +60/min)",
		},
		{in(keeper.RootGenerator, "x", "gen"), nil, "local x of generator gen() (train.py:40)"},
		{in(keeper.RootCoroutine, "x", "serve"), nil, "local x of coroutine serve() (train.py:40)"},
		{
			in(keeper.RootClosure, "seen", "make.<locals>.accept"), nil,
			"closure variable seen of make.<locals>.accept()",
		},
		{in(keeper.RootDefault, "acc", "f"), nil, "default argument acc of f()"},
		{
			in(keeper.RootCache, "", "f"),
			[]keeper.Link{container(keeper.HowVariable, "", "dict", 2048, 20)},
			"lru_cache of f() (dict, 2,048 entries, +20/min)",
		},
		{
			keeper.Root{Kind: keeper.RootThread, Name: "123"},
			nil,
			"local or thread-local variable of native thread 123",
		},
		{
			keeper.Root{Kind: keeper.RootCycle, Name: "torch.nn.parameter.Parameter"},
			nil,
			"a C++ cycle around Parameter, no variable",
		},
		{
			keeper.Root{
				Kind: keeper.RootStatic, Module: "/usr/lib/libfoo.so", Name: "table", Offset: 16,
			},
			[]keeper.Link{
				{How: keeper.HowField, TypeSize: 48, Entries: -1}, {How: keeper.HowField, Entries: -1},
			},
			"libfoo.so: table+0x10 (chunk of 48 B) -> buffer",
		},
		{
			keeper.Root{Kind: keeper.RootStatic, Module: "/usr/lib/libfoo.so", Offset: 0x4010},
			nil,
			"libfoo.so+0x4010",
		},
		{
			keeper.Root{Kind: keeper.RootStatic, Module: "/usr/bin/job", Name: "head"},
			nil,
			"job: head",
		},
	} {
		mustBe(t, KeeperPath(keeper.Path{Root: c.root, Links: c.links}), c.want)
	}
}

// The variable and the container outlast their contents.
func TestKeeperHead(t *testing.T) {
	p := keeper.Path{
		Root: keeper.Root{Kind: keeper.RootGlobal, Module: "train", Name: "cache"},
		Links: []keeper.Link{
			container(keeper.HowVariable, "", "dict", 10_512, 461),
			link(keeper.HowValue, "", "PIL.Image.Image"),
			link(keeper.HowAttribute, "im", "ImagingCore"),
		},
	}
	for width, want := range map[int]string{
		90: "train.cache (dict, 10,512 entries, +461/min) -> Image",
		50: "train.cache (dict, 10,512 entries, +461/min)",
		20: "train.cache",
	} {
		mustBe(t, KeeperHead(p, width), want, width)
	}
}

func FuzzKeeperPath(f *testing.F) {
	f.Add("global", "train", "cache", "value", "", "dict", int64(5), 1.5, true, 40)
	f.Fuzz(func(t *testing.T, kind, module, name, how, key, typeName string, entries int64,
		rate float64, repeated bool, width int,
	) {
		l := keeper.Link{
			How: keeper.How(how), Name: key, Type: typeName, Entries: keeper.Entries(entries), PerMinute: rate,
			Repeated: repeated,
		}
		p := keeper.Path{
			Root:  keeper.Root{Kind: keeper.RootKind(kind), Module: module, Name: name},
			Links: []keeper.Link{l, l, l},
		}
		width = max(3, width%200)
		got := KeeperHead(p, width)
		if n := utf8.RuneCountInString(got); n > width {
			t.Errorf("%d characters, not %d: %q", n, width, got)
		}
		if whole := KeeperPath(p); !strings.HasPrefix(whole, KeeperVariable(p)) {
			t.Errorf("%q does not begin with %q", whole, KeeperVariable(p))
		}
	})
}
