package interpreter

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The oracle is the interpreter: its output about its own objects.
func TestRuntime(t *testing.T) {
	for name, command := range tracertest.Interpreters(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, command)
			t.Run("version", p.testVersion)
			t.Run("Open", p.testOpen)
			t.Run("Text and Repr", p.testText)
			t.Run("Modules", p.testModules)
			t.Run("Structures", p.testOffsets)
			t.Run("dicts", p.testDicts)
			t.Run("containers", p.testContainers)
			t.Run("values of instances", p.testInstances)
			t.Run("Function", p.testFunctions)
			t.Run("Frames", p.testFrames)
			t.Run("FrameOf", p.testFrameOf)
			t.Run("corrupted memory", p.testCorruptedMemory)
			t.Run("Collectors", p.testCollectors) // the last, because it goes on
		})
	}
}

// Objects that cannot be read are refused, with what to do.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct{ command, remedy, want string }{
		"debug hooks": {
			"/usr/bin/python3 -X dev", "apt-get install python3", "debug hooks on its allocators",
		},
		"free-threaded": {
			"/var/cache/allocscope/interpreters/built/free-threaded-3.14/bin/python3",
			"testdata/build-interpreters.sh",
			"the objects of CPython 3.14t, which lie in its own mimalloc",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(c.command)
			if _, err := os.Stat(words[0]); err != nil {
				t.Skipf("%v (%s)", err, c.remedy)
			}

			target := tracertest.Start(t, words[0], append(words[1:], "-c",
				"print('ready', flush=True); input()")...)
			target.Await("ready")
			p, interpreter := findPython(t, target)
			_, err := Open(p, interpreter)
			if !errors.Is(err, python.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func (p *pythonTarget) testVersion(t *testing.T) {
	p.each(t, "version", func(d described) {
		minor := int(d.Hex >> 16 & 0xff)
		if hex := p.interpreter.State.Hex; minor != p.Version().Minor ||
			hex != d.Hex && (minor >= 11 || hex != 0) {
			t.Errorf("version %#x, 3.%d, want %#x", hex, p.Version().Minor, d.Hex)
		}
	})
}

func (p *pythonTarget) testText(t *testing.T) {
	p.each(t, "text", func(d described) {
		if text, ok := p.Text(d.ID); !ok || text != printed(d.Points, maxText) {
			t.Errorf("text %q, %t, want %q", text, ok, printed(d.Points, maxText))
		}
	})
	p.each(t, "key", func(d described) {
		if text, ok := p.Repr(d.ID); !ok || text != string(d.Repr) {
			t.Errorf("key %s, %t, want %s", text, ok, string(d.Repr))
		}
	})
	p.each(t, "no key", func(d described) {
		if text, ok := p.Repr(d.ID); ok || text != "" {
			t.Errorf("key %s, want none", text)
		}
	})
	for _, address := range []uint64{0, 1, 8, 1 << 40, 1 << 62, ^uint64(7), p.TypeType()} {
		text, isText := p.Text(address)
		key, isKey := p.Repr(address)
		_, isFunction := p.Function(address)
		if isText || isKey || isFunction {
			t.Errorf("%#x is text %q, key %q", address, text, key)
		}
	}
}

func (p *pythonTarget) testModules(t *testing.T) {
	modules := tracertest.Must(p.Modules())(t)
	got := make(map[string]Module)
	for _, m := range modules {
		got[m.Name] = m
	}
	p.each(t, "module", func(d described) {
		want := Module{Name: d.Name, Object: d.IDs[0], Dict: d.IDs[1]}
		if got[d.Name] != want {
			t.Errorf("module %+v, want %+v", got[d.Name], want)
		}
		if file := p.FileOf(want); file != d.File {
			t.Errorf("the file of %s is %q, want %q", d.Name, file, d.File)
		}
	})
	if len(modules) != len(p.said["module"]) {
		t.Errorf("%d modules, want %d", len(modules), len(p.said["module"]))
	}
}

func (p *pythonTarget) testOffsets(t *testing.T) {
	structures := reflect.ValueOf(p.Version().Structures)
	p.each(t, "offset", func(d described) {
		offset := structures.FieldByName(d.Name).Uint()
		if len(d.Found) != 1 || offset != d.Found[0] {
			t.Errorf("%s is %d, found at %d", d.Name, offset, d.Found)
		}
	})
}

func (p *pythonTarget) testDicts(t *testing.T) {
	var got []uint64 // of the dict that comes in several parts
	p.each(t, "dict", func(d described) {
		if d.First == 0 {
			got = nil
			p.newReader().entries(d.ID, 1<<30, func(key, value uint64) bool {
				got = append(got, key, value)
				return true
			})
		}
		if len(got) != 2*d.Len {
			t.Errorf("%d entries, want %d", len(got)/2, d.Len)
			return
		}
		// Values of a split table may be in another order.
		var want, have [][2]uint64
		for i := 0; i < len(d.IDs); i += 2 {
			want = append(want, [2]uint64{d.IDs[i], d.IDs[i+1]})
		}
		for i := 2 * d.First; i < 2*d.First+len(d.IDs); i += 2 {
			have = append(have, [2]uint64{got[i], got[i+1]})
		}
		compare := func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) }
		if d.Len < 100 {
			slices.SortFunc(want, compare)
			slices.SortFunc(have, compare)
		}
		if !slices.Equal(have, want) {
			t.Errorf("entries %x, want %x", have, want)
		}
	})
}

func (p *pythonTarget) testContainers(t *testing.T) {
	s := p.Version()
	p.each(t, "container", func(d described) {
		var got []uint64
		switch d.Type {
		case "list":
			if len(d.IDs) > 0 {
				got = p.words(t, p.word(t, d.ID+s.ListItem), len(d.IDs))
			}
		case "tuple":
			got = p.words(t, d.ID+s.TupleItem, len(d.IDs))
		case "set", "frozenset":
			mask := p.word(t, d.ID+s.SetMask)
			table := p.word(t, d.ID+s.SetTable)
			if (mask == 7) != (table == d.ID+s.SetSmalltable) {
				t.Errorf("a set of %d entries has its table at %#x", mask+1, table-d.ID)
			}
			for i := range mask + 1 {
				entry := p.words(t, table+i*s.SetEntrySize, 2)
				if entry[0] != 0 {
					got = append(got, entry[0])
				}
			}
			if p.word(t, d.ID+s.SetUsed) != uint64(len(d.IDs)) {
				t.Errorf("used is %d, want %d", p.word(t, d.ID+s.SetUsed), len(d.IDs))
			}
			slices.Sort(got)
			slices.Sort(d.IDs)
		case "deque":
			block, index := p.word(t, d.ID+s.DequeLeftblock), p.word(t, d.ID+s.DequeLeftindex)
			for range d.IDs {
				if index == (s.BlockRightlink-s.BlockData)/8 {
					block, index = p.word(t, block+s.BlockRightlink), 0
				}
				got = append(got, p.word(t, block+s.BlockData+8*index))
				index++
			}
		}
		if !slices.Equal(got, d.IDs) {
			t.Errorf("%s of %x, want %x", d.Type, got, d.IDs)
		}
	})
}

// testInstances reads attributes of instances, most of which have no dict yet.
func (p *pythonTarget) testInstances(t *testing.T) {
	withValues := 0
	p.each(t, "instance", func(d described) {
		class := p.word(t, d.ID+8)
		if flags := p.word(t, class+p.Version().TypeFlags); flags != d.Flags {
			t.Errorf("flags %#x, want %#x", flags, d.Flags)
		}

		got, ok := p.values(t, d.ID, class)
		if ok {
			withValues++
		} else {
			p.newReader().entries(p.dict(t, d.ID, class), 100, func(key, value uint64) bool {
				name, _ := p.Text(key)
				got[name] = value
				return true
			})
		}
		want := make(map[string]uint64)
		for i, name := range d.Names {
			want[name] = d.IDs[i]
		}
		if !maps.Equal(got, want) {
			t.Errorf("attributes %x, want %x", got, want)
		}
	})
	if (withValues > 0) != (p.Version().Minor >= 11) {
		t.Errorf("%d instances have values without a dict", withValues)
	}
}

// dict returns the dict of an instance.
func (p *pythonTarget) dict(t *testing.T, instance, class uint64) uint64 {
	t.Helper()
	s := p.Version()
	if s.Minor < 11 {
		return p.word(t, instance+p.word(t, class+s.TypeDictoffset))
	}
	return p.word(t, instance+uint64(s.ManagedDict))
}

// values returns the attributes of an instance that has no dict; ok is false if it has one.
func (p *pythonTarget) values(t *testing.T, instance, class uint64) (got map[string]uint64, ok bool) {
	t.Helper()
	s, got := p.Version(), make(map[string]uint64)
	var values uint64
	switch dict := p.dict(t, instance, class); {
	case s.Minor < 11 || dict != 0 && !s.TagsManagedDict:
		return got, false
	case s.InlineValues:
		values = instance + p.word(t, class+s.TypeBasicsize)
	case s.TagsManagedDict && dict&1 == 0:
		return got, false
	case s.TagsManagedDict:
		values = dict + 1
	default:
		values = p.word(t, instance+uint64(s.ManagedValues))
	}

	v, keys := newView(p.process), p.word(t, class+s.HTCachedKeys)
	shape, ok := s.Keys(v.bytes(keys, int(s.KeysHeader)))
	if !ok {
		t.Fatalf("no keys at %#x", keys)
	}
	header := v.bytes(values+uint64(s.ValuesHeaderAt), int(s.ValuesHeader))
	items, ok := s.ValuesItems(header, shape)
	if !ok || items.Embedded != s.InlineValues {
		t.Fatalf("no values at %#x: %x, keys %+v", values, header, shape)
	}
	for i := range uint64(items.Items) {
		name, _ := p.Text(p.word(t, keys+shape.EntriesAt+i*shape.EntrySize+shape.KeyAt))
		if value := p.word(t, values+items.ItemsAt+8*i); value != 0 {
			got[name] = value
		}
	}
	return got, true
}

func (p *pythonTarget) testFunctions(t *testing.T) {
	p.each(t, "function", func(d described) {
		f, ok := p.Function(d.ID)
		if !ok {
			t.Errorf("function %s is none", string(d.Qualname))
			return
		}
		want := Function{
			Qualname: printed(d.Qualname, maxText), Module: d.Module, File: d.File, Line: d.Line,
			Args: d.Args, KeywordOnly: d.KeywordOnly, FreeVars: d.FreeVars, NDefaults: d.Defaults,
			Closure: d.IDs[0], Defaults: d.IDs[1], KwDefaults: d.IDs[2], Globals: d.IDs[3],
		}
		if fmt.Sprintf("%+v", *f) != fmt.Sprintf("%+v", want) {
			t.Errorf("function %+v, want %+v", *f, want)
		}
	})
	p.each(t, "text", func(d described) {
		if f, ok := p.Function(d.ID); ok {
			t.Errorf("a str is function %+v", f)
		}
	})
}

func (p *pythonTarget) testFrames(t *testing.T) {
	frames := tracertest.Must(p.Frames())(t)
	threads := make(map[int][]Frame)
	for _, f := range frames {
		threads[f.Thread] = append(threads[f.Thread], f)
	}

	want := p.said["frame"]
	p.each(t, "thread", func(d described) {
		expected := want[:d.Frames]
		want = want[d.Frames:]
		got := threads[int(d.ID)]
		if p.Version().Minor < 11 { // threads have no ID
			at := 0
			for at < len(frames) && frames[at].Locals != 0 && !sameFrames(frames[at:], expected) {
				at++
			}
			got = frames[at:min(len(frames), at+len(expected))]
		}
		if len(got) != len(expected) {
			t.Errorf("thread %d has %d frames, want %d: %+v, %+v", d.ID, len(got), len(expected),
				got, expected)
			return
		}
		for i := range got {
			p.compareFrame(t, &got[i], &expected[i])
		}
	})
	if len(want) != 0 || len(frames) != len(p.said["frame"]) {
		t.Errorf("%d frames, want %d", len(frames), len(p.said["frame"]))
	}

	// Iterators that a loop has on the value stack.
	p.each(t, "stacked", func(d described) {
		for i := range frames {
			if frames[i].Function == "walked" {
				p.mustHold(t, &frames[i], d.ID, frames[i].StackLimit)
				if p.Version().Minor >= 14 {
					p.mustHold(t, &frames[i], d.ID, frames[i].End)
				}
			}
		}
	})
}

// sameFrames reports whether frames begin with the functions of others.
func sameFrames(got []Frame, want []described) bool {
	for i := range want {
		if i >= len(got) || got[i].Function != want[i].Function || got[i].Line != want[i].Line {
			return false
		}
	}
	return true
}

// compareFrame compares a frame and the values of its variables.
func (p *pythonTarget) compareFrame(t *testing.T, got *Frame, want *described) {
	t.Helper()
	if got.Function != want.Function || got.File != want.File || got.Line != want.Line ||
		got.Module != want.Module || !slices.Equal(got.Names, want.Names) {
		t.Errorf("frame %+v, want %+v", got, want)
		return
	}
	if got.End < got.Locals+8*uint64(len(got.Names)) || got.End > got.StackLimit {
		t.Errorf("frame %+v has no end", got)
	}

	const cellRef = 16 // PyCellObject.ob_ref
	s := p.Version()
	words := p.words(t, got.Locals, len(got.Names))
	values := make(map[string]uint64)
	for i, name := range got.Names {
		word := words[i] &^ s.StackRefTags
		if word == 0 {
			continue
		}
		if p.isCell(t, word) && want.Values[name] != word {
			word = p.word(t, word+cellRef)
		}
		values[name] = word
	}
	for name, value := range want.Values {
		if values[name] != value {
			t.Errorf("%s of %s is %#x, want %#x", name, got.Function, values[name], value)
		}
	}
}

// isCell reports whether an object's type is named "cell".
func (p *pythonTarget) isCell(t *testing.T, object uint64) bool {
	t.Helper()
	name := p.word(t, p.word(t, object+8)+p.Version().TypeName)
	memory := make([]byte, 5)
	return p.process.ReadMemory(name, memory) == nil && string(memory) == "cell\x00"
}

// mustHold checks that the value stack of a frame has an object below an end.
func (p *pythonTarget) mustHold(t *testing.T, f *Frame, object, end uint64) {
	t.Helper()
	begin := f.Locals + 8*uint64(len(f.Names))
	for _, word := range p.words(t, begin, int(end-begin)/8) {
		if word&^p.Version().StackRefTags == object {
			return
		}
	}
	t.Errorf("the value stack of %+v does not have %#x", f, object)
}

func (p *pythonTarget) testFrameOf(t *testing.T) {
	p.each(t, "suspended", func(d described) {
		f, ok := p.FrameOf(d.ID, d.Type)
		if !ok {
			t.Errorf("%s %+v has no frame", d.Type, d.Frame)
			return
		}
		p.compareFrame(t, f, d.Frame)
		if d.Stacked != 0 {
			p.mustHold(t, f, d.Stacked, f.End)
		}
		if _, ok := p.FrameOf(d.ID, "list"); ok || f.Thread != 0 || f.Object == 0 {
			t.Errorf("%s has frame %+v", d.Type, f)
		}
		// A generator lies in its object, before 3.11 in its frame object.
		if p.Version().Minor >= 11 && d.Type != "frame" && f.Object != d.ID {
			t.Errorf("frame of %#x lies in %#x", d.ID, f.Object)
		}
	})
	p.each(t, "ended", func(d described) {
		if f, ok := p.FrameOf(d.ID, d.Type); ok {
			t.Errorf("%s that has ended has frame %+v", d.Type, f)
		}
	})
}

func (p *pythonTarget) testCollectors(t *testing.T) {
	before := p.checkCollector(t, p.said["collector"])
	p.target.Say("go on")
	after := p.checkCollector(t, parse(t, p.target.Await("collected"))["collector"])
	if before.IsEnabled || !after.IsEnabled || after.Collections < before.Collections+4 {
		t.Errorf("the program has not collected: %+v, %+v", before, after)
	}
}

// checkCollector compares the collector with the account that the interpreter gives. It goes on to
// make objects while it says so.
func (p *pythonTarget) checkCollector(t *testing.T, said []described) (got keeper.Collector) {
	t.Helper()
	const more = 1000 // objects
	all := p.Collectors()
	if len(all) != 1 || len(said) != 1 {
		t.Fatalf("%d collectors, want %+v", len(all), said)
	}

	want := said[0]
	got = all[0]
	counts := got.Counts
	if diff := counts[0] - want.Counts[0]; diff < -more || diff > more {
		t.Errorf("the youngest generation counts %d, want %d", counts[0], want.Counts[0])
	}
	counts[0] = want.Counts[0]
	if got.IsIncremental || got.Collections != want.Count || got.IsEnabled != want.Enabled ||
		got.Thresholds != want.Thresholds || counts != want.Counts {
		t.Errorf("%+v, want %+v", got, want)
	}
	const freed = 50 // objects that the collection has freed at the same time
	if got.LongLived < want.Lived || got.LongLived > want.Lived+freed || got.Pending < more ||
		got.Pending > more+freed {
		t.Errorf("%d long-lived and %d pending objects, want %d and %d", got.LongLived, got.Pending,
			want.Lived, more)
	}
	if n := p.Frozen(append(want.IDs, want.IDs[0])); n != 2 || p.Frozen(want.IDs[1:]) != 0 {
		t.Errorf("%d objects are frozen, want the first, which is there twice", n)
	}
	return got
}

func TestIncrementalCollector(t *testing.T) {
	for hex, want := range map[uint32]bool{
		0x030e00f0: true, 0x030e04f0: true, 0x030e05f0: false, 0x030e08f0: false,
	} {
		r := &Runtime{version: known(14), interpreter: interpreterOf(14)}
		r.interpreter.State.Hex = hex
		if got := r.isIncremental(); got != want {
			t.Errorf("the collector of %#x is incremental: %t", hex, got)
		}
	}
}

func TestQuoteKeepsOneLine(t *testing.T) {
	for c := rune(0); c < 0x3000; c++ {
		if text := quote([]rune{c}); strings.ContainsAny(text, "\n\r\x1b\u202e\u2028") {
			t.Errorf("%#x is quoted as %q", c, text)
		}
	}
}

// testOpen: a release that publishes other offsets than its version's is refused.
func (p *pythonTarget) testOpen(t *testing.T) {
	for _, at := range p.Version().Fixed() {
		memory := memoryFunc(func(address uint64, buffer []byte) error {
			err := p.process.ReadMemory(address, buffer)
			if offset := p.interpreter.State.Runtime + at.Position - address; offset < pageSize {
				buffer[offset]++
			}
			return err
		})
		_, err := Open(memory, p.interpreter)
		if !errors.Is(err, python.ErrUnsupported) || !strings.Contains(err.Error(), at.Member) {
			t.Errorf("with another %s: %v", at.Member, err)
		}
	}

	for name, change := range map[string]func(*python.Interpreter){
		"no type": func(i *python.Interpreter) { i.State.Objects = nil },
		"another": func(i *python.Interpreter) { i.State.Objects["PyType_Type"] += 8 },
	} {
		changed := *p.interpreter
		changed.State.Objects = maps.Clone(changed.State.Objects)
		change(&changed)
		if _, err := Open(p.process, &changed); !errors.Is(err, python.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A memoryFunc is memory made of its ReadMemory.
type memoryFunc func(address uint64, buffer []byte) error

func (f memoryFunc) ReadMemory(address uint64, buffer []byte) error { return f(address, buffer) }
