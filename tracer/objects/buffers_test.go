package objects

import (
	"encoding/binary"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// buffersScript prints the addresses of buffers that lists keep, and of such as only a number or an
// array leads to that does not own them. The buffers named ends begin at the end of a page: the page
// behind was never in RAM.
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
		fields := strings.Fields(line)
		var objects []uint64

		for _, field := range fields[1:] {
			address, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, address)
		}
		names = append(names, fields[0])
		suspects = append(suspects, Suspect{Stack: uint64(len(names)), Objects: objects})
	}

	p, err := process.Open(target.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	h, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()

	found, err := h.Search(t.Context(), suspects, time.Minute)
	if err != nil {
		t.Fatal(err)
	}

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

// TestData walks a heap of three chunks of 48 KiB: numbers, numbers with one reference behind the first
// pages, and numbers with the address of code. Only the second one is all read.
func TestData(t *testing.T) {
	const chunk, chunks, top = 48 << 10, 3, 4 << 10
	content := make([]byte, chunk*chunks+top)
	for at := 0; at < len(content); at += wordSize {
		binary.LittleEndian.PutUint64(content[at:], 0x3ff0_0000_0000_0000)
	}
	for i := range chunks {
		binary.LittleEndian.PutUint64(content[chunk*i+wordSize:], chunk|prevInUse)
	}
	binary.LittleEndian.PutUint64(content[chunk*chunks+wordSize:], top|prevInUse)
	const code = forgedAt + 1<<30
	binary.LittleEndian.PutUint64(content[chunk+30<<10:], forgedAt+16)
	binary.LittleEndian.PutUint64(content[2*chunk+30<<10:], code)

	forged := newImage(content)
	m := newMemory(nil, forged)
	m.maps = []process.Mapping{
		{Start: forgedAt, End: forged.span().End, Read: true, Write: true, Path: "[heap]"},
		{Start: code, End: code + 1<<20, Read: true, Execute: true, Path: "/lib/libc.so.6"},
	}
	parts, err := m.walkHeap(forged.span())
	all := mem.Span{Start: forgedAt, End: forgedAt + chunk*chunks + 16} // up to the header of the top
	if err != nil || !slices.Equal(parts, []mem.Span{all}) {
		t.Fatalf("%x, %v, want %x", parts, err, all)
	}

	rest := func(i uint64) mem.Span { // whole pages behind the first bytes, to the last one
		return mem.Span{Start: forgedAt + chunk*i + process.PageSize, End: forgedAt + chunk*(i+1)}
	}
	if want := []mem.Span{rest(0), rest(2)}; !slices.Equal(m.data, want) {
		t.Errorf("leaves out %x, want %x", m.data, want)
	}
}
