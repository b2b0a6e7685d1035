package stack

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// mapProgram maps a copy of a program executable into this process, and deletes the copy.
func mapProgram(t *testing.T, program []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kernel.so")
	tracertest.NoError(t, os.WriteFile(path, program, 0o700))
	f := tracertest.Must(os.Open(path))(t)
	defer f.Close()

	const access = unix.PROT_READ | unix.PROT_EXEC
	address, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), access, unix.MAP_PRIVATE)
	tracertest.NoError(t, err)
	tracertest.NoError(t, os.Remove(path))
	return address
}

func TestNamerFiles(t *testing.T) {
	program := tracertest.Must(os.ReadFile("/bin/true"))(t)
	newTable := func(t *testing.T) (*Table, func()) {
		p := tracertest.Must(process.Open(os.Getpid()))(t)
		table := NewTable(p, NewNamer(p, symbol.NewDebugFiles(), false, nil), &Memory{}, nil)
		t.Cleanup(func() {
			if err := table.Close(); err != nil {
				t.Error(err)
			}
			p.Close()
		})
		return table, func() {
			maps := tracertest.Must(p.Maps())(t)
			table.SetMappings(maps)
		}
	}
	const slack = 30 // of the test, and this process's own mappings

	t.Run("of libraries that are gone are closed", func(t *testing.T) {
		table, update := newTable(t)
		before := tracertest.OpenFiles(t)
		for i := range uint64(300) {
			library := mapProgram(t, program)
			update()
			table.Add(Raw{ID: i + 1, words: []word{word(i)}})
			tracertest.NoError(t, unix.Munmap(library))
			update()
		}
		if after := tracertest.OpenFiles(t); after > before+maxGenerations+slack {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})

	t.Run("of libraries that are all mapped are bounded", func(t *testing.T) {
		table, update := newTable(t)
		before := tracertest.OpenFiles(t)
		for range 3 * maxOpenFiles {
			library := mapProgram(t, program)
			t.Cleanup(func() { _ = unix.Munmap(library) })
		}
		update()
		if after := tracertest.OpenFiles(t); after > before+maxOpenFiles+slack {
			t.Errorf("%d descriptors, %d before", after, before)
		}

		named := 0
		for _, m := range table.Namer.maps {
			if m.IsFile() && table.Namer.mappedFile(m).symbols != nil {
				named++
			}
		}
		if after := tracertest.OpenFiles(t); named < 3*maxOpenFiles || after > before+maxOpenFiles+slack {
			t.Errorf("%d files have symbols; %d descriptors, %d before", named, after, before)
		}
	})
}

// manySymbols is an ELF file with so many functions of one byte, named f, from address 0x1000 on.
func manySymbols(functions int) []byte {
	const header, program, code = 64, 56, 0x1000
	symbols := uint64(code)
	names := symbols + uint64(functions+1)*24
	sections := names + 8
	le := binary.LittleEndian

	b := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	b = le.AppendUint16(b, uint16(elf.ET_DYN))
	b = le.AppendUint16(b, uint16(elf.EM_X86_64))
	b = le.AppendUint32(b, 1)
	for _, at := range []uint64{0, header, sections} { // entry, program headers, section headers
		b = le.AppendUint64(b, at)
	}
	b = le.AppendUint32(b, 0)
	for _, size := range []uint16{header, program, 1, 64, 3, 2} {
		b = le.AppendUint16(b, size)
	}

	b = le.AppendUint32(b, uint32(elf.PT_LOAD))
	b = le.AppendUint32(b, uint32(elf.PF_R|elf.PF_X))
	for _, v := range []uint64{0, 0, 0, code, code + uint64(functions), code} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, make([]byte, code-len(b))...)

	b = append(b, make([]byte, 24)...)
	for i := range uint64(functions) {
		b = le.AppendUint32(b, 1)
		b = append(b, byte(elf.STB_GLOBAL)<<4|byte(elf.STT_FUNC), 0, 1, 0)
		b = le.AppendUint64(b, code/2+i%(code/2))
		b = le.AppendUint64(b, 1)
	}
	b = append(b, "\x00f\x00\x00\x00\x00\x00\x00"...)

	b = append(b, make([]byte, 64)...)
	section := func(kind elf.SectionType, at, size uint64, link uint32, entry uint64) {
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, uint32(kind))
		for _, v := range []uint64{0, 0, at, size} {
			b = le.AppendUint64(b, v)
		}
		b = le.AppendUint32(b, link)
		b = le.AppendUint32(b, 1)
		for _, v := range []uint64{8, entry} {
			b = le.AppendUint64(b, v)
		}
	}
	section(elf.SHT_SYMTAB, symbols, uint64(functions+1)*24, 2, 24)
	section(elf.SHT_STRTAB, names, 8, 0, 0)
	return b
}

func TestNamerSymbols(t *testing.T) {
	const functions, files = 1 << 20, 8 // 16 MiB each
	p := tracertest.Must(process.Open(os.Getpid()))(t)
	defer p.Close()
	program := manySymbols(functions)
	mapped := make(map[uint64]bool)
	for range files {
		library := mapProgram(t, program)
		t.Cleanup(func() { _ = unix.Munmap(library) })
		mapped[uint64(uintptr(unsafe.Pointer(&library[0])))] = true
	}
	maps := tracertest.Must(p.Maps())(t)

	n := NewNamer(p, symbol.NewDebugFiles(), false, nil)
	n.setMappings(maps, 0)
	before := heapBytes()
	for range 2 {
		named := 0
		for _, m := range n.maps {
			if !mapped[m.Start] {
				continue
			}
			if f, isNamed := n.frame(m, m.Start+0xfff, m.Start+0xfff); isNamed && f.Function == "f" {
				named++
			}
		}
		if named != files {
			t.Errorf("%d of %d files name their function", named, files)
		}
	}
	if after := heapBytes(); after > before+maxSymbolBytes+24<<20 {
		t.Errorf("%d symbol tables of 16 MiB take %d MiB", files, (after-before)>>20)
	}
	if err := n.close(); err != nil {
		t.Error(err)
	}
}
