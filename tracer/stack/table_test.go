package stack

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// interpreterCode is where the interpreter of testNamer starts. It ends at twice that.
const interpreterCode = 0x10000

// testNamer returns a Namer with code objects f at 0xf and g at 0x10, and one at 0x11 that was
// freed. The interpreter's file has no symbols.
func testNamer() *Namer {
	p := &process.Process{PID: 7}
	n := NewNamer(p, false)
	module := process.Mapping{
		Start: interpreterCode, End: 2 * interpreterCode, Path: "/python", Execute: true, Inode: 5,
	}
	n.maps = []process.Mapping{module}
	n.files[module.File()] = &mappedFile{}
	n.Codes.interpreter = &python.Interpreter{Module: module}
	n.Codes.Known[codeKey{address: 0xf}] = &python.Code{Function: "f", File: "f.py", FirstLine: 1}
	n.Codes.Known[codeKey{address: 0x10}] = &python.Code{Function: "g", File: "f.py", FirstLine: 5}
	n.Codes.Known[codeKey{address: 0x11}] = nil
	return n
}

func names(n *Namer, words ...uint64) (names []string) {
	raw := Raw{ID: 1}
	for _, w := range words {
		raw.words = append(raw.words, word(w))
	}
	for _, f := range n.stack(raw).Frames {
		names = append(names, f.Function)
	}
	return names
}

func TestNamer(t *testing.T) {
	native := func(address uint64) uint64 { return wordOf(bpf.WordNative, address) }
	pythonFrame := func(code uint64) uint64 { return wordOf(bpf.WordPython, code) }
	const offset, shim = 0, 0xffff_fffe // in the bytecode; -2 is before _co_firsttraceable
	const eval = interpreterCode + 0x100

	for _, c := range []struct {
		name  string
		words []uint64
		want  []string
	}{
		{"empty", nil, nil},
		{
			"native",
			[]uint64{native(0x500), native(eval)},
			[]string{"[unknown]+0x500", "python+0x100"},
		},
		{
			"Python frames replace the interpreter's",
			[]uint64{
				native(0x500), native(eval), pythonFrame(0xf), offset,
				native(eval), native(0x600),
			},
			[]string{"[unknown]+0x500", "f", "[unknown]+0x600"},
		},
		{
			"frames left belong to the last run",
			[]uint64{
				native(0x500), native(eval), pythonFrame(0xf), offset, native(0x600),
				pythonFrame(0x10), offset,
			},
			[]string{"[unknown]+0x500", "f", "g", "[unknown]+0x600"},
		},
		{
			"shim of the interpreter",
			[]uint64{native(0x500), pythonFrame(0xf), shim, pythonFrame(0x10), offset},
			[]string{"g", "[unknown]+0x500"},
		},
		{
			"freed code object",
			[]uint64{pythonFrame(0x11), offset},
			[]string{"[Python code that was gone before it could be read]"},
		},
		{
			"by frame pointer",
			[]uint64{wordOf(bpf.WordFramePointer, eval)},
			[]string{"python+0x100 [by frame pointer]"},
		},
		{
			"second word is missing",
			[]uint64{native(0x500), pythonFrame(0xf)},
			[]string{"[unknown]+0x500"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := names(testNamer(), c.words...); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}

	t.Run("return address is looked up at its call", func(t *testing.T) {
		const end = 2 * interpreterCode
		got := names(testNamer(), native(end), native(end), wordOf(bpf.WordInterrupted, end))
		want := []string{"[unknown]+0x20000", "python+0x10000", "[unknown]+0x20000"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestNamerOfShortenedStack(t *testing.T) {
	raw := Raw{ID: 1, gap: 3, words: []word{
		0x500, word(wordOf(bpf.WordPython, 0xf)), 0, word(wordOf(bpf.WordPython, 0x10)), 0, 0x600,
	}}
	var got []string
	for _, f := range testNamer().stack(raw).Frames {
		got = append(got, f.Function)
	}
	want := []string{"[unknown]+0x500", "f", growth.FramesLeftOut, "g", "[unknown]+0x600"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	n := testNamer()
	table := NewTable(n.process, n)
	add := func(id uint64, words ...word) { table.Add(Raw{ID: id, words: words}) }

	add(1, 0x500, 0x600)
	add(2, 0x500, 0x600)
	add(3, 0x500)
	add(1, 0x700) // another stack of that ID is not named
	if table.Get(1) != table.Get(2) {
		t.Error("stacks with equal frames are two")
	}
	if one, three := table.Get(1), table.Get(3); len(one.Frames) != 2 || len(three.Frames) != 1 {
		t.Errorf("%+v, %+v", one, three)
	}
	if s := table.Get(UnobservedID); s.PID != 7 || s.Frames[0].Function != UnobservedRoot {
		t.Errorf("%+v", s)
	}
	if lost := table.Lost(); lost != 0 {
		t.Errorf("lost %d, want 0", lost)
	}

	if s := table.Get(4); s.PID != 7 || len(s.Frames) > 0 || s.Truncated == "" {
		t.Errorf("%+v", s)
	}
	if lost := table.Lost(); lost != 1 {
		t.Errorf("lost %d, want 1", lost)
	}
	if err := table.Close(); err != nil {
		t.Error(err)
	}
}
