package stack

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/allocscope/allocscope/tracer/python"
)

// heapBytes is what is alive in the heap of this program.
func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has found dead is swept
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

var testLayout = python.CodeLayout{
	Minor: 12, Filename: 0, Name: 8, Linetable: 16, Firstlineno: 24, BytesSize: 0, BytesData: 8,
	UnicodeLength: 0, UnicodeState: 8, ASCIIData: 24, CompactData: 24,
}

func TestCodeNames(t *testing.T) {
	t.Run("memory of long line tables is bounded", func(t *testing.T) {
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
	})
}
