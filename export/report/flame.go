package report

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/words"
)

// Bounds of the flame graph.
const (
	maxStackDepth = 500 // frames, from the outermost
	maxFunctions  = 300_000
	maxDrawnNodes = 40_000 // the largest of them are drawn
	minNodeShare  = 1.0 / 5000
)

const smallName = "(small)"

// addFlames makes the flame graphs of a profile: of resident memory, and of GPU memory if there is
// any. There are none without a profile, and where nothing grew. It removes the frames that the
// profile wants dropped.
func (d *pageData) addFlames(p *pprof.Profile) error {
	if p == nil {
		return nil
	}

	resident, objects := sampleType(p, "resident_space"), sampleType(p, "inuse_objects")
	if resident < 0 || objects < 0 {
		return errors.New("growth.pb.gz has no sample types resident_space and inuse_objects")
	}

	if err := profile.DropFrames(p); err != nil {
		return fmt.Errorf("growth.pb.gz: %w", err)
	}

	d.Flame = flameOf(p, "what grew since the baseline", resident, objects)
	d.GPUFlames = gpuFlamesOf(p)
	return nil
}

// flameOf is the tree of the stacks that grew in two sample types of a profile; nil if nothing did.
// Without a type of objects, that index is negative.
func flameOf(p *pprof.Profile, name string, bytes, objects int) *flameData {
	root := &flameTree{name: name}
	g := flameCollector{make(map[call]*flameTree), make(map[*pprof.Location][]string), maxFunctions}
	several := severalProcesses(p)
	for _, s := range p.Sample {
		held, count := float64(s.Value[bytes]), 0.0
		if objects >= 0 {
			count = float64(s.Value[objects])
		}

		if held == 0 && count == 0 {
			continue // of other memory
		}

		at := root
		if several {
			at = g.child(root, processText(s))
		}

		g.add(at, s, held, count)
	}

	shrunk := root.sum()

	if root.resident <= 0 && root.objects <= 0 {
		return nil
	}

	return root.data(shrunk)
}

func sampleType(p *pprof.Profile, name string) int {
	return slices.IndexFunc(p.SampleType,
		func(t *pprof.ValueType) bool { return t != nil && t.Type == name })
}

// label is the first value of a label.
func label(s *pprof.Sample, name string) string {
	if values := s.Label[name]; len(values) > 0 {
		return clean(values[0])
	}
	return ""
}

func severalProcesses(p *pprof.Profile) bool {
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool {
		return !slices.Equal(s.Label["pid"], p.Sample[0].Label["pid"])
	})
}

func processText(s *pprof.Sample) string {
	pid, command := label(s, "pid"), label(s, "process")
	switch {
	case pid == "":
		return "(no process)"
	case command == "":
		return "PID " + pid
	}

	return command + " (PID " + pid + ")"
}

// frameTexts returns the functions of a location, the innermost first: several where functions are
// inlined.
func frameTexts(l *pprof.Location) []string {
	module := ""
	if l.Mapping != nil && l.Mapping.File != "" {
		module = path.Base(l.Mapping.File)
	}

	var texts []string
	for _, line := range l.Line {
		if line.Function != nil {
			texts = append(texts, clean(functionText(line, module)))
		}
	}

	if len(texts) == 0 {
		texts = []string{clean(fmt.Sprintf("%s+%#x", module, l.Address))}
	}

	return texts
}

// functionText is "function (file.py:12)", else "function (libx.so)", else "function".
func functionText(line pprof.Line, module string) string {
	f := line.Function
	switch {
	case f.Filename != "" && line.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", f.Name, path.Base(f.Filename), line.Line)
	case f.Filename != "":
		return f.Name + " (" + path.Base(f.Filename) + ")"
	case module != "" && !strings.Contains(f.Name, "+0x"):
		return f.Name + " (" + module + ")"
	}

	return f.Name
}

// data is the tree without the nodes that are too small to be seen. The note counts them, and the
// stacks that have shrunk.
func (t *flameTree) data(shrunk shrinkage) *flameData {
	shown := t.largest(maxDrawnNodes)
	b := flameEncoder{shown: shown, names: make(map[string]int), components: make(map[string]int)}
	root := b.node(t)
	return &flameData{
		Names: ordered(b.names), Components: ordered(b.components), Root: root,
		Note: words.NotDrawn(b.hidden, smallName, shrunk.stacks, -shrunk.bytes),
	}
}

// ordered returns the keys by their numbers.
func ordered(numbers map[string]int) []string {
	return slices.SortedFunc(maps.Keys(numbers),
		func(a, b string) int { return numbers[a] - numbers[b] })
}

// A flameEncoder encodes a tree, with each name once.
type flameEncoder struct {
	shown             map[*flameTree]bool
	names, components map[string]int
	hidden            int // nodes that are not shown
}

func numberOf(numbers map[string]int, name string) int {
	i, ok := numbers[name]
	if !ok {
		i = len(numbers)
		numbers[name] = i
	}
	return i
}

func (b *flameEncoder) node(t *flameTree) flameNode {
	n := b.bare(t)
	var small flameTree
	for _, c := range t.children {
		if b.shown[c] {
			n.Children = append(n.Children, b.node(c))
			continue
		}

		b.hidden += c.count()
		small.resident += c.resident
		small.objects += c.objects
		small.addComponents(c)
	}

	if small.resident > 0 || small.objects > 0 {
		small.name = smallName
		n.Children = append(n.Children, b.bare(&small))
	}

	return n
}

func (b *flameEncoder) bare(t *flameTree) flameNode {
	return flameNode{
		Name: numberOf(b.names, t.name), Component: numberOf(b.components, t.component()),
		Resident: whole(t.resident), Objects: whole(t.objects),
	}
}

func whole(x float64) int64 { return int64(min(x, maxExact)) }

// A flameTree is a function called from one place. Its sums are its own, and include all that it
// calls once sum has been called.
type flameTree struct {
	name              string
	resident, objects float64
	components        []componentSum
	children          []*flameTree
}

type componentSum struct {
	component         string
	resident, objects float64
}

// A flameCollector makes a tree of samples.
type flameCollector struct {
	nodes map[call]*flameTree
	texts map[*pprof.Location][]string
	// limit is the number of nodes in the tree. Whatever they call beyond it counts as their own.
	limit int
}

// A call leads from one function to the next.
type call struct {
	from *flameTree
	name string
}

// child returns the node of the function with that name that is called from another.
func (g *flameCollector) child(from *flameTree, name string) *flameTree {
	c, ok := g.nodes[call{from, name}]
	switch {
	case ok:
		return c
	case len(g.nodes) >= g.limit:
		return from
	}

	c = &flameTree{name: name}
	g.nodes[call{from, name}] = c
	from.children = append(from.children, c)

	return c
}

// add adds a sample whose outermost frame is called from at.
func (g *flameCollector) add(at *flameTree, s *pprof.Sample, resident, objects float64) {
	left := maxStackDepth
	for _, l := range slices.Backward(s.Location) {
		frames, ok := g.texts[l]
		if !ok {
			frames = frameTexts(l)
			g.texts[l] = frames
		}

		for _, frame := range slices.Backward(frames) {
			if left--; left >= 0 {
				at = g.child(at, frame)
			}
		}

		if left <= 0 {
			break
		}
	}

	at.resident += resident
	at.objects += objects
	at.addComponent(componentSum{label(s, "component"), resident, objects})
}

// maxComponents bounds the components of a node. The others count as one.
const maxComponents = 64

func (t *flameTree) addComponent(sum componentSum) {
	if len(t.components) >= maxComponents {
		sum.component = "other"
	}

	i := slices.IndexFunc(t.components,
		func(o componentSum) bool { return o.component == sum.component })
	if i < 0 {
		t.components = append(t.components, sum)
		return
	}

	t.components[i].resident += sum.resident
	t.components[i].objects += sum.objects
}

// addComponents adds the components of a child.
func (t *flameTree) addComponents(c *flameTree) {
	for _, sum := range c.components {
		t.addComponent(sum)
	}
}

// component is the one with most of the memory.
func (t *flameTree) component() string {
	if len(t.components) == 0 {
		return ""
	}
	return slices.MaxFunc(t.components, func(a, b componentSum) int {
		return cmp.Or(cmp.Compare(a.resident, b.resident), cmp.Compare(a.objects, b.objects),
			cmp.Compare(b.component, a.component))
	}).component
}

// A shrinkage is the stacks that hold less than at the baseline.
type shrinkage struct {
	stacks int
	bytes  float64
}

// sum leaves out stacks that shrank, and adds to each function all that it calls. maxStackDepth
// bounds the depth.
func (t *flameTree) sum() shrinkage {
	var shrunk shrinkage
	if t.resident < 0 {
		shrunk = shrinkage{1, t.resident}
	}

	t.resident, t.objects = max(t.resident, 0), max(t.objects, 0)

	for i := range t.components {
		t.components[i].resident, t.components[i].objects = max(t.components[i].resident, 0),
			max(t.components[i].objects, 0)
	}

	for _, c := range t.children {
		more := c.sum()
		shrunk.stacks += more.stacks
		shrunk.bytes += more.bytes
		t.resident += c.resident
		t.objects += c.objects
		t.addComponents(c)
	}

	return shrunk
}

// count is the number of nodes that hold anything.
func (t *flameTree) count() int {
	if t.resident <= 0 && t.objects <= 0 {
		return 0
	}

	n := 1
	for _, c := range t.children {
		n += c.count()
	}

	return n
}

// largest returns the largest nodes, by their share of bytes or of objects, except those that are
// too small to be seen. A node always comes after its callers, which are at least as large.
func (t *flameTree) largest(most int) map[*flameTree]bool {
	all := []*flameTree{t}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].children...)
	}

	weight := func(n *flameTree) float64 {
		return max(n.resident/max(t.resident, 1), n.objects/max(t.objects, 1))
	}
	slices.SortStableFunc(all,
		func(a, b *flameTree) int { return cmp.Compare(weight(b), weight(a)) })

	shown := make(map[*flameTree]bool)
	for _, n := range all[:min(most, len(all))] {
		if weight(n) >= minNodeShare {
			shown[n] = true
		}
	}

	return shown
}

// MarshalJSON writes [name, component, resident, objects, [children]].
func (n flameNode) MarshalJSON() ([]byte, error) { return n.append(nil), nil }

func (n *flameNode) append(to []byte) []byte {
	to = append(to, '[')
	for _, value := range []int64{int64(n.Name), int64(n.Component), n.Resident, n.Objects} {
		to = append(strconv.AppendInt(to, value, 10), ',')
	}

	if len(n.Children) == 0 {
		to[len(to)-1] = ']'
		return to
	}

	to = append(to, '[')
	for i := range n.Children {
		to = append(n.Children[i].append(to), ',')
	}

	to[len(to)-1] = ']'
	return append(to, ']')
}

// gpuFlamesOf returns the trees of the stacks that grew on GPUs: memory in use, and reserved
// segments, which contain it. A profile without GPU memory does not have these sample types.
func gpuFlamesOf(p *pprof.Profile) []gpuFlame {
	var flames []gpuFlame
	for _, of := range []struct{ label, name, bytes, objects string }{
		{"GPU, in use", "what grew on GPUs since the baseline", "device_space", "device_objects"},
		{
			"GPU, reserved", "what was reserved on GPUs since the baseline",
			"device_reserved_space", "",
		},
	} {
		bytes := sampleType(p, of.bytes)
		if bytes < 0 {
			continue
		}
		if flame := flameOf(p, of.name, bytes, sampleType(p, of.objects)); flame != nil {
			flames = append(flames, gpuFlame{of.label, *flame})
		}
	}

	return flames
}

func (d *pageData) hasFlame() bool { return d.Flame != nil || len(d.GPUFlames) > 0 }

// flameNote names the parts that the flame graphs leave out, each by its name where there are
// several.
func (d *pageData) flameNote() string {
	var notes []string
	switch {
	case d.Flame == nil || d.Flame.Note == "":
	case len(d.GPUFlames) > 0:
		notes = append(notes, "Host, resident: "+d.Flame.Note)
	default:
		notes = append(notes, d.Flame.Note)
	}

	for _, flame := range d.GPUFlames {
		if flame.Note != "" {
			notes = append(notes, flame.Label+": "+flame.Note)
		}
	}

	return strings.Join(notes, " ")
}
