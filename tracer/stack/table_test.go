package stack

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// interpreterCode is where the interpreter of testNamer starts. It ends at twice that.
const interpreterCode = 0x10000

// testNamer returns a Namer with code objects f at 0xf and g at 0x10, and one at 0x11 that was
// freed. The interpreter's file has no symbols.
func testNamer() *Namer {
	p := &process.Process{PID: 7}
	n := NewNamer(p, symbol.NewDebugFiles(), false, nil)
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

func testTable(memory *Memory, own *duty.Budget) *Table {
	n := testNamer()
	return NewTable(n.process, n, memory, own)
}

func stackOf(n *Namer, raw Raw) *growth.Stack { return n.stack(raw, n.maps) }

func names(n *Namer, words ...uint64) (names []string) {
	raw := Raw{ID: 1}
	for _, w := range words {
		raw.words = append(raw.words, word(w))
	}
	for _, f := range stackOf(n, raw).Frames {
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
	for _, f := range stackOf(testNamer(), raw).Frames {
		got = append(got, f.Function)
	}
	want := []string{"[unknown]+0x500", "f", growth.FramesLeftOut, "g", "[unknown]+0x600"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTableNamesLater(t *testing.T) {
	const stacks, words = 15_000, 40 // 9 MB
	fill := func(table *Table) {
		for id := range uint64(stacks) {
			table.Add(Raw{ID: id + 1, words: append(make([]word, words), word(id))})
		}
	}
	count := func(table *Table) (named, kept, givenUp int) {
		return len(table.named.ids) - 1, len(table.unnamed.stacks), len(table.TakeGivenUp())
	}

	t.Run("by the mappings of then", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		table.Add(Raw{ID: 1, words: []word{interpreterCode + 0x100}})
		table.SetMappings(nil)
		table.Add(Raw{ID: 2, words: []word{interpreterCode + 0x200}})

		if len(table.named.ids) != 1 {
			t.Error("named before anything asked for them")
		}
		before, after := table.Get(1).Frames[0].Function, table.Get(2).Frames[0].Function
		if before != "python+0x100" || after != "[unknown]+0x10200" {
			t.Errorf("%q before the change of the mappings, %q after it", before, after)
		}
	})

	t.Run("at the latest after some changes of the mappings", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		table.Add(Raw{ID: 1, words: []word{0x500}})
		for i := range uint64(maxGenerations) {
			if len(table.named.ids) != 1 {
				t.Fatalf("named after %d changes", i)
			}
			table.SetMappings([]process.Mapping{{Start: i, End: i + 1, Execute: true}})
		}
		if named, kept, givenUp := count(table); named != 1 || kept != 0 || givenUp != 0 {
			t.Errorf("%d named, %d kept, %d given up; want one named", named, kept, givenUp)
		}
	})

	t.Run("the oldest, where memory ends", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		fill(table)

		named, kept, givenUp := count(table)
		if table.unnamed.bytes > maxUnnamedBytes || kept == 0 || givenUp > 0 || named+kept != stacks {
			t.Errorf("%d named, %d kept, %d given up, of %d", named, kept, givenUp, stacks)
		}
		for id := range uint64(stacks) {
			if _, ok := table.Find(id + 1); !ok {
				t.Fatalf("stack %d of %d is gone", id+1, stacks)
			}
		}
		if table.unnamed.bytes != 0 {
			t.Errorf("%d bytes of no stack", table.unnamed.bytes)
		}
	})

	t.Run("or gives them up, and takes them again", func(t *testing.T) {
		own := duty.NewBudget(0)
		own.Account(duty.Names).Spend(time.Hour)
		table := testTable(&Memory{}, own)
		fill(table)

		ids := table.TakeGivenUp()
		if kept := len(table.unnamed.stacks); len(ids) == 0 || len(ids)+kept != stacks {
			t.Fatalf("%d given up, %d kept, of %d", len(ids), kept, stacks)
		}
		for i, id := range ids {
			if id != uint64(i+1) {
				t.Fatalf("stack %d is given up, want %d: the oldest first", id, i+1)
			}
		}
		if table.Get(ids[0]).Frames != nil || table.Lost() != 1 {
			t.Error("a stack that was given up is not counted as lost")
		}

		table.Add(Raw{ID: ids[0], words: []word{0x500}})
		if table.GetCheap(ids[0]).Frames != nil || table.Lost() != 1 {
			t.Error("a stack that holds nothing is named beyond the CPU time, or counted as lost")
		}
		if s := table.Get(ids[0]); len(s.Frames) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestTableNamesFewThatHoldNothing(t *testing.T) {
	table := testTable(&Memory{}, nil)
	for id := range uint64(2 * maxCheap) {
		table.Add(Raw{ID: id + 1, words: []word{word(id)}})
	}

	named := 0
	for range 2 { // those that have a name keep it
		named = 0
		for id := range uint64(2 * maxCheap) {
			if len(table.GetCheap(id+1).Frames) > 0 {
				named++
			}
		}
	}
	if named != maxCheap || table.Lost() != 0 {
		t.Errorf("%d named, %d lost; want %d and none", named, table.Lost(), maxCheap)
	}
	if len(table.Get(2*maxCheap).Frames) == 0 {
		t.Error("a stack that holds something has no name")
	}
}

func TestTable(t *testing.T) {
	table := testTable(&Memory{}, nil)
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
	if s := table.Get(UnobservedID); s.PID != 7 || s.Frames[0].Function != growth.RootUnobserved {
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
