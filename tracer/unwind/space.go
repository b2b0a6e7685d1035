package unwind

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A Space tells the kernel side which code a process has mapped where, and which table goes with it.
type Space struct {
	process *process.Process
	tables  *Tables
	outer   *ebpf.Map // process -> mappings
	inner   *ebpf.MapSpec
	files   map[process.FileID]file // met so far
	vdso    uint32                  // table; 0: not asked for yet, or not to be had
	sent    []bpf.KernelMapping
	missing atomic.Int64
}

// A file is what a mapping needs to know of it: its table, 0 for none, and how addresses relate.
type file struct {
	table   uint32
	headers *symbol.File // nil: not an ELF file that can be read
}

// NewSpace is for one process. outer is the kernel's map of mappings, inner what each process's is made like.
func NewSpace(p *process.Process, tables *Tables, outer *ebpf.Map, inner *ebpf.MapSpec) *Space {
	return &Space{process: p, tables: tables, outer: outer, inner: inner, files: make(map[process.FileID]file)}
}

// Update makes the kernel side know these maps. Files that are new are queued for their tables; urgent tells which of them
// are needed first. interpreter holds Python's evaluation loop; the zero Mapping: none does.
func (s *Space) Update(maps []process.Mapping, interpreter process.Mapping, urgent func(process.Mapping) bool) error {
	entries := make([]bpf.KernelMapping, 1, 64)
	missing := 0
	for _, m := range maps {
		if !m.Execute || m.Path == "[uprobes]" || m.Path == "[vsyscall]" {
			continue
		}
		if len(entries) > bpf.MaxMappings {
			missing++
			continue
		}
		entry := s.entry(m, urgent(m))
		if m.IsFile() && m.File() == interpreter.File() && entry.Kind == bpf.KernelMappingKindMAPPING_TABLE {
			entry.Kind = bpf.KernelMappingKindMAPPING_INTERPRETER
		}
		entries = append(entries, entry)
	}
	s.missing.Store(int64(missing))
	if len(s.sent) > 0 && slices.Equal(entries[1:], s.sent[1:]) {
		return nil
	}
	entries[0].Start, entries[0].Bias = uint64(len(entries)-1), s.tables.generation()
	if err := s.send(entries); err != nil {
		return err
	}
	s.sent = entries
	return nil
}

// Missing is the number of mappings that there was no room for.
func (s *Space) Missing() int64 { return s.missing.Load() }

// entry describes one mapping. Code without a file, or with one that is no ELF file, has frame pointers at best.
func (s *Space) entry(m process.Mapping, urgent bool) bpf.KernelMapping {
	entry := bpf.KernelMapping{Start: m.Start, End: m.End, Kind: bpf.KernelMappingKindMAPPING_ANONYMOUS}
	if m.Path == "[vdso]" {
		if s.vdso == 0 {
			s.vdso, _ = s.tables.addVDSO() // without it there are frame pointers
		}
		if s.vdso != 0 { // the image is linked to address 0
			entry.Kind, entry.Table, entry.Bias = bpf.KernelMappingKindMAPPING_TABLE, s.vdso, m.Start
		}
		return entry
	}
	if !m.IsFile() {
		return entry
	}
	f := s.file(m, urgent)
	if f.headers == nil {
		return entry
	}
	if bias, ok := f.headers.Bias(m.Start, m.Offset); ok {
		entry.Kind, entry.Table, entry.Bias = bpf.KernelMappingKindMAPPING_TABLE, f.table, bias
	}
	return entry
}

// file looks at the file of a mapping once.
func (s *Space) file(m process.Mapping, urgent bool) file {
	if f, ok := s.files[m.File()]; ok {
		return f
	}
	f := s.add(m, urgent)
	s.files[m.File()] = f
	return f
}

func (s *Space) add(m process.Mapping, urgent bool) file {
	opened, err := s.process.OpenMapped(m)
	if err != nil {
		return file{}
	}
	info, err := opened.Stat()
	if err != nil {
		opened.Close()
		return file{}
	}
	headers, err := symbol.Open(opened, m.Path)
	if err != nil {
		opened.Close()
		return file{}
	}
	id := Identity{BuildID: headers.BuildID(), Size: info.Size()}
	if id.BuildID == "" {
		id.Device, id.Inode = m.Device, m.Inode
	}
	taken := false
	index, _ := s.tables.Add(id, m.Path, urgent, func() (Source, error) { // ErrFull is counted there
		taken = true
		return opened, nil
	})
	if !taken {
		opened.Close()
	}
	return file{table: index, headers: headers}
}

// send replaces the process's mappings as a whole.
func (s *Space) send(entries []bpf.KernelMapping) error {
	spec := s.inner.Copy()
	spec.MaxEntries = uint32(len(entries))
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("create map of %d mappings: %w", len(entries), err)
	}
	defer m.Close()
	keys := make([]uint32, len(entries))
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := m.BatchUpdate(keys, entries, nil); err != nil {
		return fmt.Errorf("write mappings: %w", err)
	}
	if err := s.outer.Put(uint32(s.process.PID), m); err != nil {
		return fmt.Errorf("publish mappings of pid %d: %w", s.process.PID, err)
	}
	return nil
}

// addVDSO adds the code that the kernel itself maps into every process: ours is the same.
func (t *Tables) addVDSO() (index uint32, err error) {
	image, err := readVDSO()
	if err != nil {
		return 0, err
	}
	return t.Add(Identity{BuildID: "[vdso]", Size: int64(len(image))}, "[vdso]", true, func() (Source, error) {
		return struct {
			io.ReaderAt
			io.Closer
		}{bytes.NewReader(image), io.NopCloser(nil)}, nil
	})
}

// readVDSO reads the image from our own memory.
func readVDSO() ([]byte, error) {
	raw, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("find vdso: %w", err)
	}
	maps, err := process.ParseMaps(raw)
	if err != nil {
		return nil, fmt.Errorf("find vdso: %w", err)
	}
	at := slices.IndexFunc(maps, func(m process.Mapping) bool { return strings.HasPrefix(m.Path, "[vdso]") })
	if at < 0 {
		return nil, errors.New("find vdso: not mapped")
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, fmt.Errorf("read vdso: %w", err)
	}
	defer memory.Close()
	image := make([]byte, maps[at].Len())
	if _, err := memory.ReadAt(image, int64(maps[at].Start)); err != nil {
		return nil, fmt.Errorf("read vdso: %w", err)
	}
	return image, nil
}

// wordBytes is the memory of the words, in the byte order of this machine, which is that of the kernel side.
func wordBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
