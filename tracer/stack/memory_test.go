package stack

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/allocscope/allocscope/tracer/cpython"
)

// heapBytes is the live memory in the heap of this program.
func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // objects that the first has found dead are swept
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// codeOf returns a record of a code object whose line table is so long. Its layout is testLayout.
func codeOf(address uint64, linetable int) *CodeRecord {
	const text, table = 1 << 40, 1 << 41
	object := binary.LittleEndian.AppendUint64(nil, text)
	object = binary.LittleEndian.AppendUint64(object, text)
	object = binary.LittleEndian.AppendUint64(object, table)
	object = append(object, 0, 0, 0, 0)

	name := make([]byte, 24, 25) // length, state: kind 1, compact, ascii
	name[0], name[8] = 1, 1<<2|1<<5|1<<6
	lines := binary.LittleEndian.AppendUint64(nil, uint64(linetable))
	return &CodeRecord{address: address, pieces: [4]memoryPiece{
		{address, object},
		{text, append(name, 'f')},
		{table, append(lines, make([]byte, linetable)...)},
	}}
}

var testLayout = cpython.CodeLayout{
	LineForm: cpython.LocationTable, Qualname: cpython.Absent, FirstTraceable: cpython.Absent,
	Filename: 0, Name: 8, Linetable: 16, Firstlineno: 24, BytesSize: 0, BytesData: 8,
	UnicodeLength: 0, UnicodeState: 8, ASCIIData: 24, CompactData: 24,
}

// The memory of long line tables is bounded.
func TestCodeNames(t *testing.T) {
	const codes, linetable, bound = 300, 1 << 20, 64 << 20
	n := testNamer()
	n.Codes.interpreter.CodeLayout = testLayout

	before := heapBytes()
	for i := range uint64(codes) {
		n.Codes.add(codeOf(i, linetable))
	}
	if after := heapBytes(); after > before+bound {
		t.Errorf("%d line tables of 1 MiB take %d MiB", codes, (after-before)>>20)
	}
	if code := n.Codes.Known[codeKey{address: codes - 1}]; code == nil || code.Function != "f" {
		t.Errorf("the last code object is %+v", code)
	}
	runtime.KeepAlive(n)
}

// deepStack returns a stack whose frames no other stack has.
func deepStack(id uint64) Raw {
	const frames = 300
	raw := Raw{ID: id}
	for i := range uint64(frames) {
		raw.words = append(raw.words, word(id<<10|i))
	}
	return raw
}

func TestTableMemory(t *testing.T) {
	const stacks = 6_000 // 27 KiB each

	t.Run("stacks of one snapshot are bounded", func(t *testing.T) {
		const bound = 2*maxNamedBytes + maxUnnamedBytes + 64<<20 // maps, and Go's rounding
		before := heapBytes()
		table := testTable(&Memory{}, nil)
		for id := range uint64(stacks) {
			table.Add(deepStack(id + 1))
			table.Get(id + 1)
		}
		if after := heapBytes(); after > before+bound {
			t.Errorf("%d stacks take %d MiB", stacks, (after-before)>>20)
		}
		if len(table.Get(1).Frames) != 300 || table.Lost() == 0 {
			t.Errorf("the first stack is %+v, %d are lost", table.Get(1), table.Lost())
		}
	})

	t.Run("what holds memory stays, the rest is forgotten and counted", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		table.Add(deepStack(1))
		kept := table.Get(1)

		forgotten := make(map[uint64]bool)
		for id := uint64(2); id < stacks; id++ {
			table.Add(deepStack(id))
			table.GetUnheld(id)
			if id%500 != 0 {
				continue
			}

			table.Get(1)
			for _, id := range table.Forget() {
				forgotten[id] = true
			}
			if table.named.bytes > maxNamedBytes*3/2 {
				t.Fatalf("%d bytes after a snapshot", table.named.bytes)
			}
		}

		if table.Get(1) != kept || forgotten[1] || table.Lost() > 0 {
			t.Errorf("%d lost; a stack that holds memory is forgotten: %v", table.Lost(),
				forgotten[1])
		}
		if len(forgotten) == 0 || table.Forgotten() != uint64(len(forgotten)) {
			t.Errorf("%d are forgotten, %d counted", len(forgotten), table.Forgotten())
		}
		if again := table.TakeGivenUp(); len(again) != len(forgotten) {
			t.Errorf("%d of %d are reported again", len(again), len(forgotten))
		}
	})

	t.Run("a young stack is not forgotten", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		for id := range uint64(1800) {
			table.Add(deepStack(id + 1))
			table.GetUnheld(id + 1)
		}
		for range 2 {
			if ids := table.Forget(); len(ids) > 0 {
				t.Fatalf("%d stacks that the next snapshot may find to hold memory", len(ids))
			}
		}
		if len(table.Forget()) == 0 {
			t.Error("stacks that two snapshots have found to hold nothing are kept")
		}
	})

	t.Run("IDs of one stack", func(t *testing.T) {
		table := testTable(&Memory{}, nil)
		add := func(id uint64) {
			table.Add(Raw{ID: id, words: []word{0x500, 0x600}})
			table.Get(id)
		}
		add(1)
		before := table.named.bytes
		for id := uint64(2); id < 2+maxNamedBytes*5/4/idBytes; id++ {
			add(id)
		}
		for range 3 {
			table.Get(2)
			table.Forget()
		}
		if table.named.bytes > maxNamedBytes || table.named.bytes < before {
			t.Errorf("%d bytes", table.named.bytes)
		}
		if table.Get(1) != table.Get(2) || table.Lost() > 0 || table.Forgotten() > 0 {
			t.Error("a stack is forgotten with one of its IDs")
		}
	})

	t.Run("of all processes", func(t *testing.T) {
		var memory Memory
		var tables []*Table
		for range 8 {
			table := testTable(&memory, nil)
			tables = append(tables, table)
			for id := range uint64(1800) {
				table.Add(deepStack(id + 1))
				table.GetUnheld(id + 1)
			}
		}
		if bytes := memory.bytes.Load(); bytes > 2*maxAllNamedBytes+maxNamedBytes {
			t.Errorf("%d bytes", bytes)
		}
		for _, table := range tables {
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		}
		if bytes := memory.bytes.Load(); bytes != 0 {
			t.Errorf("%d bytes of no table", bytes)
		}
	})
}
