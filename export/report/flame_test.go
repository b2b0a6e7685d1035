package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/growthtest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// functionSums sums a flame graph by function, a function that calls itself once.
func functionSums(f *flameData) map[string]exporttest.Sum {
	sums := make(map[string]exporttest.Sum)
	var walk func(n *flameNode, above map[string]bool)
	walk = func(n *flameNode, above map[string]bool) {
		name, _, _ := strings.Cut(f.Names[n.Name], " (")
		flat := n.Resident
		below := maps.Clone(above)
		below[name] = true
		for i := range n.Children {
			flat -= n.Children[i].Resident
			walk(&n.Children[i], below)
		}
		sum := sums[name]
		sum.Flat += flat
		if !above[name] {
			sum.Cum += n.Resident
		}
		sums[name] = sum
	}
	walk(&f.Root, map[string]bool{})
	return sums
}

// hostFlame is the flame graph of resident memory.
func hostFlame(p *pprof.Profile) (*flameData, error) {
	var d pageData
	err := d.addFlames(p)
	return d.Flame, err
}

// drawn is the flame graph of the resident memory of holdings.
func drawn(t *testing.T, held ...growth.Holding) *flameData {
	t.Helper()
	f := tracertest.Must(hostFlame(built(t, held...)))(t)
	return f
}

func TestFlame(t *testing.T) {
	t.Run("numbers of pprof", func(t *testing.T) {
		held := slices.Delete(holdings(), 1, 2)
		want, f := exporttest.Top(t, exporttest.ProfileFile(t, built(t, held...))), drawn(t, held...)
		got := functionSums(f)
		for function, sum := range want {
			if got[function] != sum {
				t.Errorf("%s has %+v, by pprof %+v", function, got[function], sum)
			}
		}
		if len(want) != 6 || f.Root.Resident != 4096+12288+1000+20480 || f.Root.Objects != 108 {
			t.Errorf("%d functions, all is %d bytes in %d objects", len(want), f.Root.Resident,
				f.Root.Objects)
		}
	})

	t.Run("order of frames", func(t *testing.T) {
		f := drawn(t, holdings()...)
		var paths []string
		var walk func(n *flameNode, path string)
		walk = func(n *flameNode, path string) {
			path += f.Names[n.Name] + "{" + f.Components[n.Component] + "}"
			if len(n.Children) == 0 {
				paths = append(paths, fmt.Sprintf("%s %d %d", path, n.Resident, n.Objects))
			}
			for i := range n.Children {
				walk(&n.Children[i], path+" > ")
			}
		}
		walk(&f.Root, "")
		all := strings.Join(paths, "\n")
		for _, want := range []string{
			"what grew since the baseline{", "> python3 (PID 42){", "> main (train.py:7){",
			"> step (train.py:40){train.py} > leak (libx.so){train.py} 4096 100\n",
			"> other (libx.so){train.py} 12288 7",
			"> worker (PID 50){train.py} > main (train.py:7){train.py} > leak (libx.so){train.py} 1000 1",
			"> [heap: free but resident]{", "main heap{",
		} {
			if !strings.Contains(all+"\n", want) {
				t.Errorf("there is no %q in\n%s", want, all)
			}
		}
		if strings.Contains(all, "malloc") || strings.Contains(all, "cache") || len(paths) != 4 {
			t.Errorf("%d stacks:\n%s", len(paths), all)
		}
	})

	// Growth at one address and a fall at another of the same function are one.
	t.Run("samples of one stack", func(t *testing.T) {
		held := func(address uint64, bytes int64) growth.Holding {
			frame := growthtest.PythonFrame("f", "a.py", 1)
			frame.Address = address
			return growth.Holding{
				Stack: &growth.Stack{ID: address, Frames: []growth.Frame{frame}},
				Kind:  growth.KindHeap, ResidentBytes: bytes,
			}
		}
		if got := drawn(t, held(1, 100), held(2, -70)); got.Root.Resident != 30 || got.Note != "" {
			t.Errorf("%+v", got)
		}
	})

	t.Run("small nodes", func(t *testing.T) {
		held := []growth.Holding{{Stack: stackOf(0, 2), ResidentBytes: 1_000_000}}
		for i := range 50 {
			held = append(held, growth.Holding{Stack: stackOf(i+1, 2), ResidentBytes: 10})
		}
		f := drawn(t, held...)
		small := functionSums(f)[smallName]
		if len(f.Root.Children) != 2 || small.Cum != 500 || f.Root.Resident != 1_000_500 ||
			f.Note != "100 functions are too small to be drawn: see (small)." {
			t.Errorf("%d children, %+v, %q", len(f.Root.Children), small, f.Note)
		}
	})

	t.Run("deep stacks", func(t *testing.T) {
		f := drawn(t, growth.Holding{Stack: stackOf(1, 3000), ResidentBytes: 4096})
		depth, n := 0, &f.Root
		for ; len(n.Children) > 0; n = &n.Children[0] {
			depth++
		}
		if outermost := f.Names[f.Root.Children[0].Name]; depth != maxStackDepth ||
			n.Resident != 4096 || outermost != "function_1_2999 (module_2999.py:2)" {
			t.Errorf("%d deep, %d bytes, %s", depth, n.Resident, outermost)
		}
	})

	t.Run("missing sample types", func(t *testing.T) {
		p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "cpu", Unit: "ns"}}}
		show(t, &Trace{Growth: p}).mustSay(t, "losses",
			"The flame graph is left out: growth.pb.gz has no sample types")
		bad := grownProfile(t)
		bad.DropFrames = "("
		if _, err := hostFlame(bad); err == nil {
			t.Error("a broken expression is no error")
		}
	})

	t.Run("process without a name", func(t *testing.T) {
		s := &pprof.Sample{Label: map[string][]string{"pid": {"7"}}}
		if got := processText(s); got != "PID 7" {
			t.Error(got)
		}
	})

	// However many functions a profile has, all their memory is there.
	t.Run("full tree keeps its sums", func(t *testing.T) {
		g := flameCollector{make(map[call]*flameTree), make(map[*pprof.Location][]string), 3}
		p := built(t, growth.Holding{Stack: stackOf(1, 2), ResidentBytes: 10},
			growth.Holding{Stack: stackOf(2, 2), ResidentBytes: 100})
		root := &flameTree{}
		for _, s := range p.Sample {
			g.add(root, s, float64(s.Value[4]), 0)
		}
		if root.sum(); root.count() != 4 || root.resident != 110 {
			t.Errorf("%d functions hold %g bytes", root.count()-1, root.resident)
		}
	})

	t.Run("component of most bytes", func(t *testing.T) {
		tree := &flameTree{}
		for _, sum := range []componentSum{
			{"pil", 100, 9}, {"torch", 300, 1}, {"pil", 150, 9}, {"numpy", 10, 900},
		} {
			tree.addComponent(sum)
		}
		if got := tree.component(); got != "torch" {
			t.Errorf("it belongs to %s", got)
		}
		for i := range 1000 {
			tree.addComponent(componentSum{fmt.Sprint(i), 1, 1})
		}
		if len(tree.components) > maxComponents+1 || tree.component() != "other" {
			t.Errorf("%d owners, most to %s", len(tree.components), tree.component())
		}
	})
}

// stackOf is a stack of so many functions that no other stack has.
func stackOf(id, depth int) *growth.Stack {
	s := &growth.Stack{ID: uint64(id), PID: 42}
	for d := range depth {
		s.Frames = append(s.Frames, growthtest.PythonFrame(fmt.Sprintf("function_%d_%d", id, d),
			fmt.Sprintf("/src/module_%d.py", d), 1+id))
	}
	return s
}
