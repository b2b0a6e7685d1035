package report

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

// Bounds of the flame graph.
const (
	deepestStack  = 500 // frames, from the outermost
	mostFunctions = 300_000
	mostNodes     = 40_000 // the largest of them are drawn
	smallestNode  = 1.0 / 5000
)

const smallName = "(small)"

// addFlames makes the flame graphs of a profile: of what is resident, and of device memory where it has any. None without a profile and
// where nothing grew. The frames that the profile wants dropped are dropped from it.
func (d *pageData) addFlames(p *profile.Profile) error {
	if p == nil {
		return nil
	}
	resident, objects := sampleType(p, "resident_space"), sampleType(p, "inuse_objects")
	if resident < 0 || objects < 0 {
		return errors.New("growth.pb.gz has no sample types resident_space and inuse_objects")
	}
	if err := export.DropFrames(p); err != nil {
		return fmt.Errorf("growth.pb.gz: %w", err)
	}
	d.Flame = flameOf(p, "what grew since the boundary", resident, objects)
	d.DeviceFlames = deviceFlamesOf(p)
	return nil
}

// flameOf is the tree of what grew in two of a profile's sample types, and what its samples shrank by; nil where nothing did. Without
// objects that index is negative.
func flameOf(p *profile.Profile, name string, bytes, objects int) *flameData {
	root := &flameTree{name: name}
	g := flameGrower{make(map[call]*flameTree), make(map[*profile.Location][]string), mostFunctions}
	several := severalProcesses(p)
	for _, s := range p.Sample {
		held, count := float64(s.Value[bytes]), 0.0
		if objects >= 0 {
			count = float64(s.Value[objects])
		}
		if held == 0 && count == 0 {
			continue // it is of other memory
		}
		at := root
		if several {
			at = g.follow(root, processText(s))
		}
		g.add(at, s, held, count)
	}
	shrunk := root.sum()
	if root.resident <= 0 && root.objects <= 0 {
		return nil
	}
	return root.data(shrunk)
}

func sampleType(p *profile.Profile, name string) int {
	return slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t != nil && t.Type == name })
}

// label is the first value of a label.
func label(s *profile.Sample, name string) string {
	if values := s.Label[name]; len(values) > 0 {
		return clean(values[0])
	}
	return ""
}

func severalProcesses(p *profile.Profile) bool {
	return slices.ContainsFunc(p.Sample, func(s *profile.Sample) bool { return !slices.Equal(s.Label["pid"], p.Sample[0].Label["pid"]) })
}

func processText(s *profile.Sample) string {
	pid, command := label(s, "pid"), label(s, "process")
	switch {
	case pid == "":
		return "(no process)"
	case command == "":
		return "PID " + pid
	}
	return command + " (PID " + pid + ")"
}

// frameTexts are the functions of a location, the innermost first: the calls that were compiled into one are apart.
func frameTexts(l *profile.Location) []string {
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
func functionText(line profile.Line, module string) string {
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

// data is the tree without what is too small to be seen.
func (t *flameTree) data(shrunk shrinkage) *flameData {
	shown := t.largest(mostNodes)
	b := flameBuilder{shown: shown, names: make(map[string]int), owners: make(map[string]int)}
	root := b.node(t)
	d := &flameData{Names: ordered(b.names), Owners: ordered(b.owners), Root: root}
	var notes []string
	if b.left > 0 {
		notes = append(notes, fmt.Sprintf("%s too small to be drawn apart: see %s.", words.Plural(b.left, "function is", "functions are"), smallName))
	}
	if shrunk.stacks > 0 {
		notes = append(notes, fmt.Sprintf("%s left out: %s less than at the boundary.", words.Plural(shrunk.stacks, "stack that has shrunk is", "stacks that have shrunk are"), words.Bytes(-shrunk.bytes)))
	}
	d.Note = strings.Join(notes, " ")
	return d
}

// ordered are the keys by their number.
func ordered(numbers map[string]int) []string {
	return slices.SortedFunc(maps.Keys(numbers), func(a, b string) int { return numbers[a] - numbers[b] })
}

// A flameBuilder writes down a tree, each name once.
type flameBuilder struct {
	shown         map[*flameTree]bool
	names, owners map[string]int
	left          int // nodes that are not shown
}

func number(numbers map[string]int, name string) int {
	i, ok := numbers[name]
	if !ok {
		i = len(numbers)
		numbers[name] = i
	}
	return i
}

func (b *flameBuilder) node(t *flameTree) flameNode {
	n := b.bare(t)
	var small flameTree
	for _, c := range t.children {
		if b.shown[c] {
			n.Children = append(n.Children, b.node(c))
			continue
		}
		b.left += c.count()
		small.resident += c.resident
		small.objects += c.objects
		small.join(c)
	}
	if small.resident > 0 || small.objects > 0 {
		small.name = smallName
		n.Children = append(n.Children, b.bare(&small))
	}
	return n
}

func (b *flameBuilder) bare(t *flameTree) flameNode {
	return flameNode{Name: number(b.names, t.name), Owner: number(b.owners, t.owner()), Resident: whole(t.resident), Objects: whole(t.objects)}
}

func whole(x float64) int64 { return int64(min(x, largest)) }
