package unwind

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// kernelMaps are the maps of the BPF object that this package fills, and the form of the maps
// inside them.
type kernelMaps struct {
	tables, mappings           *ebpf.Map
	innerTables, innerMappings *ebpf.MapSpec
}

func newKernelMaps(t *testing.T, maxTables uint32) kernelMaps {
	t.Helper()
	tracertest.NeedsRoot(t)
	tracertest.NoError(t, rlimit.RemoveMemlock())
	spec := tracertest.Must(bpf.LoadKernel())(t)

	tables, mappings := spec.Maps[bpf.MapUnwindTables], spec.Maps[bpf.MapMappings]
	tables.MaxEntries = maxTables
	return kernelMaps{newMap(t, tables), newMap(t, mappings), tables.InnerMap, mappings.InnerMap}
}

func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m := tracertest.Must(ebpf.NewMap(spec))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func newTables(t *testing.T, maps kernelMaps) *Tables {
	t.Helper()
	tables := NewTables(maps.tables, maps.innerTables, nil)
	t.Cleanup(func() {
		if err := tables.Close(); err != nil {
			t.Error(err)
		}
	})

	return tables
}

// content is a file in memory that counts how often it was closed.
type content struct {
	*bytes.Reader
	closed *atomic.Int32
}

func (c content) Close() error {
	c.closed.Add(1)
	return nil
}

func never() (Source, error) { return nil, errors.New("opened again") }

// readTable returns the words that the kernel holds for a table.
func readTable(t *testing.T, outer *ebpf.Map, index uint32) []uint64 {
	t.Helper()
	var inner *ebpf.Map
	if err := outer.Lookup(index, &inner); err != nil {
		t.Fatalf("table %d: %v", index, err)
	}
	defer inner.Close()

	words := make([]uint64, inner.MaxEntries())
	for i := range words {
		tracertest.NoError(t, inner.Lookup(uint32(i), &words[i]))
	}

	return words
}

func TestTablesAdd(t *testing.T) {
	maps := newKernelMaps(t, 16)
	tables := newTables(t, maps)
	closed := new(atomic.Int32)
	add := func(id Identity, data []byte) uint32 {
		index, err := tables.Add(id, "test", false,
			func() (Source, error) { return content{bytes.NewReader(data), closed}, nil })
		tracertest.NoError(t, err)

		tables.Wait(t.Context(), time.Minute)
		return index
	}

	raw := contents(t, "/bin/true")
	want, id := buildBytes(t, raw), Identity{BuildID: "a", Size: int64(len(raw))}
	index := add(id, raw)
	if got := readTable(t, maps.tables, index); !slices.Equal(got, want.Words) {
		t.Errorf("the kernel holds %d words that are not the table's %d", len(got), len(want.Words))
	}

	if again, err := tables.Add(id, "test", false, never); err != nil || again != index {
		t.Errorf("the same file has table %d, %v, want %d", again, err, index)
	}

	unreadable := add(Identity{Inode: 1}, []byte("no ELF file"))
	if words := readTable(t, maps.tables, unreadable); words[0] != 0 {
		t.Errorf("the table of an unreadable file begins with %#x", words[0])
	}

	stats := tables.Stats()
	if stats.Files != 1 || stats.Rows != want.Rows || stats.Queued != 0 || stats.WithoutInfo != 1 ||
		closed.Load() != 2 {
		t.Errorf("%+v, closed %d times", stats, closed.Load())
	}
}

func TestTablesFull(t *testing.T) {
	maps := newKernelMaps(t, 3) // 0 is no table
	tables := newTables(t, maps)
	for inode := range uint64(4) {
		_, err := tables.Add(Identity{Inode: inode + 1}, "x", false, func() (Source, error) {
			return content{bytes.NewReader(nil), new(atomic.Int32)}, nil
		})

		if full := inode >= 2; full != errors.Is(err, ErrFull) {
			t.Errorf("file %d: %v", inode, err)
		}
	}

	if full := tables.Stats().Dropped; full != 2 {
		t.Errorf("%d files are counted, want 2", full)
	}
}

func TestTablesOrder(t *testing.T) {
	tables := &Tables{
		queue: []job{
			{index: 1, id: Identity{Size: 30}},
			{index: 2, id: Identity{Size: 20}},
			{index: 3, id: Identity{Size: 40}, urgent: true},
			{index: 4, id: Identity{Size: 50}},
		},
	}

	tables.Prioritize(4)
	var order []uint32
	for len(tables.queue) > 0 {
		order = append(order, tables.dequeue().index)
	}

	if want := []uint32{3, 4, 2, 1}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}

func TestAddressSpace(t *testing.T) {
	const processes = 64
	maps := newKernelMaps(t, 1024)
	tables := newTables(t, maps)
	var files int

	for i := range processes {
		p := startCat(t, "cat")
		mapped := tracertest.Must(p.Maps())(t)

		space := NewAddressSpace(p, tables, maps.mappings, maps.innerMappings)
		t.Cleanup(space.Close)
		if err := space.Update(mapped, process.Mapping{}, notUrgent); err != nil {
			t.Fatalf("process %d: %v", i, err)
		}

		tables.Wait(t.Context(), time.Minute)
		if i == 0 {
			files = tables.Stats().Files
		}

		mustHaveMappings(t, maps, p, mapped)
	}

	if got := tables.Stats().Files; got != files || files < 3 { // cat, libc, ld.so, vdso
		t.Errorf("%d tables for %d processes, want the %d of the first", got, processes, files)
	}

	p := startCat(t, "cat")
	space := NewAddressSpace(p, tables, maps.mappings, maps.innerMappings)
	t.Cleanup(space.Close)
	mapped := tracertest.Must(p.Maps())(t)

	if err := space.Update(mapped, process.Mapping{}, notUrgent); err == nil {
		t.Error("a process beyond the limit was added")
	}
}

// notUrgent queues files by their size alone.
func notUrgent(process.Mapping) bool { return false }

// A process may map a file of its own that has the build ID and the size of a library.
func TestAddressSpaceForgedBuildID(t *testing.T) {
	maps := newKernelMaps(t, 1024)
	tables := newTables(t, maps)
	var files int
	forged := filepath.Join(t.TempDir(), "cat")
	tracertest.NoError(t, os.WriteFile(forged, contents(t, "/bin/cat"), 0o700))

	for _, program := range []string{forged, "/bin/cat"} {
		p := startCat(t, program)
		mapped := tracertest.Must(p.Maps())(t)
		space := NewAddressSpace(p, tables, maps.mappings, maps.innerMappings)
		t.Cleanup(space.Close)
		tracertest.NoError(t, space.Update(mapped, process.Mapping{}, notUrgent))
		tables.Wait(t.Context(), time.Minute)
		if program == forged {
			files = tables.Stats().Files
		}
	}
	if got := tables.Stats().Files; got != files+1 {
		t.Errorf("%d tables, want %d and one of the second program", got, files)
	}
}

func startCat(t *testing.T, program string) *process.Process {
	t.Helper()
	target := tracertest.Start(t, program)
	target.Say("ready")
	target.Await("ready") // by now it is loaded

	p := tracertest.Must(process.Open(target.PID()))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// mustHaveMappings checks that the kernel has an entry with a table for each executable mapping of
// a file.
func mustHaveMappings(t *testing.T, maps kernelMaps, p *process.Process, mapped []process.Mapping) {
	t.Helper()
	var inner *ebpf.Map
	tracertest.NoError(t, maps.mappings.Lookup(uint32(p.PID), &inner))
	defer inner.Close()

	known := make(map[uint64]bpf.Mapping)
	for i := range inner.MaxEntries() {
		var m bpf.Mapping
		tracertest.NoError(t, inner.Lookup(i, &m))

		if i == 0 && m.Start != uint64(inner.MaxEntries()-1) {
			t.Errorf("the array of %d entries counts %d", inner.MaxEntries(), m.Start)
		}

		known[m.Start] = m
	}

	for _, m := range mapped {
		if !m.Execute || !m.IsFile() {
			continue
		}

		k := known[m.Start]
		if k.End != m.End || k.Kind != bpf.MappingTable ||
			readTable(t, maps.tables, k.Table)[0] == 0 {
			t.Errorf("%s at %#x is %+v", m.Path, m.Start, k)
		}
	}
}
