package objects

import (
	"encoding/binary"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// buffersScript prints the addresses of buffers that lists keep, and of such as only a number or an
// array leads to that does not own them. The buffers named ends begin at the end of a page: the
// page behind was never in RAM.
const buffersScript = `
import ctypes
import numpy
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]

def show(name, addresses):
    print(name, *addresses)
strings = [ctypes.create_string_buffer(100000) for i in range(8)]
show("strings", map(ctypes.addressof, strings))
arrays = [numpy.ones(12500) for i in range(8)]
show("arrays", [a.ctypes.data for a in arrays])
small = [numpy.ones(4096) for i in range(8)] # in the heap, smaller than a large chunk
show("small", [a.ctypes.data for a in small])
slices = [numpy.ones(12500)[::100] for i in range(8)]
show("slices", [a.ctypes.data for a in slices])

lost = [libc.malloc(100000) for i in range(16)]
numbers = [ctypes.c_void_p(a) for a in lost[:8]]
show("nothing", lost[:8])
show("borrowed", lost[8:])
borrowed = [(ctypes.c_char * 100000).from_address(a) for a in lost[8:]]
del lost
ends = [libc.malloc(100000) for i in range(1024)] # nobody writes to them
show("ends", [a for a in ends if a % 4096 == 0 or a % 4096 > 4096 - 64])
print("ready", flush=True)
input()
`

// TestBuffers finds the keepers of memory that arrays of NumPy and objects of ctypes own.
func TestBuffers(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", buffersScript))
	var suspects []Suspect
	var names []string
	for _, line := range target.Await("ready") {
		name, objects := NumbersOf(t, line)
		names = append(names, name)
		suspects = append(suspects, Suspect{Stack: uint64(len(names)), Objects: objects})
	}

	h := openHeap(t, target.PID())

	found := tracertest.Must(h.Search(t.Context(), suspects, time.Minute))(t)

	for i, s := range found {
		isLost := names[i] == "nothing" || names[i] == "borrowed" || names[i] == "ends"
		isNamed := len(s.Paths) > 0 && s.Paths[0].Root.Kind == keeper.RootGlobal &&
			s.Paths[0].Root.Name == names[i] && s.Paths[0].Samples == len(suspects[i].Objects)
		if s.Samples != len(suspects[i].Objects) || isLost && len(s.Paths) > 0 || !isLost && !isNamed {
			t.Errorf("%s: %+v", names[i], s)
		}
	}
	if len(found) != 7 {
		t.Errorf("%d results", len(found))
	}
}

// TestWalk reads a heap with chunks of 1 MiB between small ones: numbers, numbers with references
// in the middle, and numbers that are free. The inside of the second one alone is read. The memory
// of the first one begins with a page.
func TestWalk(t *testing.T) {
	const small, large, free = 1 << 10, 1 << 20, 7
	sizes := []int{small, small, small, small - 16, large, large, small, large, small, small}
	content := make([]byte, 3*large+7*small-16)
	for at := 0; at < len(content); at += wordSize {
		binary.LittleEndian.PutUint64(content[at:], 0x3ff0_0000_0000_0000)
	}
	at, starts := 0, []int{}
	for i, size := range sizes {
		flags := prevInUse
		if i == free+1 {
			flags = 0
		}
		binary.LittleEndian.PutUint64(content[at+wordSize:], uint64(size|flags))
		starts, at = append(starts, at), at+size
	}
	middle := starts[5] + large/2
	for i := range probedBytes / wordSize {
		binary.LittleEndian.PutUint64(content[middle+i*wordSize:], forgedAt+16)
	}

	forged := newImage(content)
	m := newMemory(nil, forged)
	m.maps = []process.Mapping{
		{Start: forgedAt, End: forged.span().End, Read: true, Write: true, Path: "[heap]"},
	}
	heap := mem.Span{Start: forgedAt, End: forgedAt + uint64(len(content))}
	m.regions, m.spans = []region{{heap, regionHeap}}, mem.Spans{wholePages(heap)}
	m.findParts()

	var found []int
	read := uint64(0)
	references := 0
	err := m.each(nil, func(p *piece) error {
		for _, k := range p.chunks {
			if p.At(k.User().Start, 1) == nil { // it is in the piece before or in the next one
				continue
			}
			i := slices.Index(starts, int(k.Start-forgedAt))
			if i < 0 || k.Size != uint64(sizes[i]) || k.InUse == (i == free) && i < len(sizes)-1 {
				t.Errorf("chunk %d is %+v", i, k)
			}
			found = append(found, i)
		}
		read += uint64(len(p.Bytes))
		for i := 0; i < len(p.Bytes); i += wordSize {
			if binary.LittleEndian.Uint64(p.Bytes[i:]) == forgedAt+16 {
				references++
			}
		}
		return nil
	})
	if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}; err != nil || !slices.Equal(found, want) {
		t.Errorf("%v, chunks %v, want %v", err, found, want)
	}
	if references != probedBytes/wordSize {
		t.Errorf("%d references of %d", references, probedBytes/wordSize)
	}
	if least, most := uint64(large), uint64(large+large/4); read < least || read > most {
		t.Errorf("read %d bytes, want %d to %d", read, least, most)
	}
}
