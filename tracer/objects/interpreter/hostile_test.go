package interpreter

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/python"
)

// forged is where the memory of the tests lies.
const forged = 1 << 20

// interpreterOf returns an interpreter whose exported types lie at the beginning of forged memory,
// 8 bytes apart, so that few words make an object of any type.
func interpreterOf(minor int) *python.Interpreter {
	i := &python.Interpreter{
		Version: "3.x",
		Kernel: bpf.Python{
			Interpreters: forged, InterpreterThreads: 8, ThreadNext: 8, ThreadFrame: 24,
			ThreadFrameIndirect: ^uint16(0), FrameCode: 32, FrameBack: 24, FrameInstruction: 96,
			InstructionScale: 1,
		},
		CPython: known(minor), CodeLayout: known(8).CodeLayout,
		State: python.State{Runtime: forged, Objects: make(map[string]uint64)},
	}
	for n, name := range []string{
		"PyType_Type", "PyModule_Type", "PyUnicode_Type", "PyBytes_Type", "PyLong_Type",
		"PyTuple_Type", "PyDict_Type", "PyFunction_Type", "PyCode_Type", "PyFrame_Type",
		"PyGen_Type",
	} {
		i.State.Objects[name] = forged + 8*uint64(n)
	}
	return i
}

// FuzzRuntime: whatever the memory, the data read are bounded, and the texts are printable.
func FuzzRuntime(f *testing.F) {
	const maxRead = maxPagesRead * pageSize // bytes
	word := func(value uint64) []byte { return binary.LittleEndian.AppendUint64(nil, value) }
	for minor := 8; minor <= 14; minor++ {
		for n := range uint64(11) {
			// Each word is the address of a type: an object of that type, whose members are such
			// objects.
			f.Add(minor, word(forged+8*n), true)
			f.Add(minor, bytes.Repeat(word(forged+8*n), 256), false)
		}
		f.Add(minor, bytes.Repeat([]byte{0xff}, 4096), false)
		f.Add(minor, word(1<<60), true)
	}

	f.Fuzz(func(t *testing.T, minor int, contents []byte, everywhere bool) {
		if _, err := cpython.Find(minor); err != nil {
			return
		}
		read := 0
		var memory python.Memory = fakeMemory{start: forged, bytes: contents, read: &read}
		if everywhere {
			if len(contents) < 8 {
				return
			}
			memory = repeated{word: contents[:8], read: &read}
		}
		r := &Runtime{
			memory: memory, interpreter: interpreterOf(minor), version: known(minor),
			typeType: forged,
		}
		check := func(what string, texts ...string) {
			t.Helper()
			if read > maxRead {
				t.Fatalf("%s: %d bytes are read", what, read)
			}
			read = 0
			for _, text := range texts {
				if !utf8.ValidString(text) || growth.Printable(text) != text {
					t.Errorf("%s: %q", what, text)
				}
			}
		}

		for at := uint64(forged); at < forged+128; at += 8 {
			text, _ := r.Text(at)
			check("Text", text)
			key, _ := r.Repr(at)
			check("Repr", key)
			if function, ok := r.Function(at); ok {
				check("Function", function.Qualname, function.Module, function.File)
			}
			for typeName := range frameTypes {
				if frame, ok := r.FrameOf(at, typeName); ok {
					check("FrameOf", append(frame.Names, frame.Function, frame.Module)...)
					if frame.End > frame.StackLimit || frame.Locals > frame.End {
						t.Errorf("%+v", frame)
					}
				}
			}
		}
		if modules, err := r.Modules(); err == nil {
			check("Modules", modules[0].Name, r.FileOf(modules[0]))
		}
		frames, _ := r.Frames()
		check("Frames")
		if len(frames) > maxFrames {
			t.Errorf("%d frames", len(frames))
		}
		r.Collectors()
		check("Collectors")
		r.Frozen([]uint64{8})
		check("Frozen")
	})
}

// A corrupted memory has some words of the pages of another one replaced.
type corrupted struct {
	pages map[uint64][]byte
	read  int
}

func (m *corrupted) ReadMemory(address uint64, buffer []byte) error {
	m.read += len(buffer)
	page, known := m.pages[address&^(pageSize-1)]
	if !known || page == nil || address%pageSize+uint64(len(buffer)) > pageSize {
		return errUnreadable
	}
	copy(buffer, page[address%pageSize:])
	return nil
}

// corrupt returns memory in which words of some pages are replaced: by numbers that a process may
// forge, and by pointers that belong elsewhere.
func corrupt(pages map[uint64][]byte, random *rand.Rand) *corrupted {
	forgeries := []uint64{0, 1, 8, 1 << 20, 1 << 40, 1 << 60, 1 << 63, ^uint64(0)}
	addresses := slices.Sorted(maps.Keys(pages))
	m := &corrupted{pages: maps.Clone(pages)}
	for range 1 + random.IntN(len(addresses)) {
		at := addresses[random.IntN(len(addresses))]
		page := slices.Clone(m.pages[at])
		if page == nil {
			continue
		}
		for range 1 + random.IntN(64) {
			value := forgeries[random.IntN(len(forgeries))]
			if other := pages[addresses[random.IntN(len(addresses))]]; other != nil &&
				random.IntN(2) == 0 {
				value = mem.Word(other, 8*random.Uint64N(pageSize/8))
			}
			binary.LittleEndian.PutUint64(page[8*random.IntN(pageSize/8):], value)
		}
		m.pages[at] = page
	}
	return m
}

// A recorder keeps the pages that are read of a process.
type recorder struct {
	python.Memory
	pages map[uint64][]byte
}

func (m recorder) ReadMemory(address uint64, buffer []byte) error {
	err := m.Memory.ReadMemory(address, buffer)
	if err == nil && len(buffer) == pageSize {
		m.pages[address] = slices.Clone(buffer)
	}
	return err
}

// testCorruptedMemory: whatever a process writes over its state, the data read are bounded, and the
// texts are printable.
func (p *pythonTarget) testCorruptedMemory(t *testing.T) {
	defer func(whole python.Memory) { p.memory = whole }(p.memory)
	pages := recorder{Memory: p.process, pages: make(map[uint64][]byte)}
	p.memory = pages
	p.ask(t)
	if len(pages.pages) < 50 {
		t.Fatalf("%d pages are read", len(pages.pages))
	}

	const seeds = 40
	for seed := range uint64(seeds) {
		m := corrupt(pages.pages, rand.New(rand.NewPCG(seed, 0)))
		p.memory = m
		p.ask(t)
		if m.read > 6*maxPagesRead*pageSize {
			t.Errorf("seed %d: %d bytes are read", seed, m.read)
		}
	}
}

// TestCutInt: the digits of an int lie in a page that cannot be read.
func TestCutInt(t *testing.T) {
	const object = forged + pageSize - cpython.LongDigits
	interpreter, page := interpreterOf(8), make([]byte, pageSize)
	put := func(address, word uint64) { binary.LittleEndian.PutUint64(page[address-forged:], word) }
	put(object+cpython.ObType, interpreter.State.Objects["PyLong_Type"])
	put(object+cpython.ObSize, 1)

	r := &Runtime{
		memory:      fakeMemory{start: forged, bytes: page, read: new(int)},
		interpreter: interpreter, version: known(8),
	}
	if text, ok := r.Repr(object); ok {
		t.Errorf("it is %s", text)
	}
}

// ask asks for all that a runtime answers, and checks that texts are printable.
func (p *pythonTarget) ask(t *testing.T) {
	t.Helper()
	check := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !utf8.ValidString(text) || growth.Printable(text) != text {
				t.Errorf("%q is not printable", text)
			}
		}
	}

	modules, _ := p.Modules()
	for _, m := range modules {
		check(m.Name, p.FileOf(m))
	}
	frames, _ := p.Frames()
	for _, d := range p.said["suspended"] {
		if f, ok := p.FrameOf(d.ID, d.Type); ok {
			frames = append(frames, *f)
		}
	}
	for _, f := range frames {
		check(append(f.Names, f.Function, f.Module, f.File)...)
		if f.Locals > f.End || f.End > f.StackLimit || f.StackLimit-f.Locals > 1<<24 {
			t.Errorf("frame %+v", f)
		}
	}
	for _, d := range p.said["function"][:12] {
		if f, ok := p.Function(d.ID); ok {
			check(slices.Concat(f.Args, f.KeywordOnly, f.FreeVars)...)
			check(f.Qualname, f.Module, f.File)
		}
	}
	for _, d := range p.said["key"] {
		text, _ := p.Repr(d.ID)
		check(text)
	}
	p.Collectors()
	p.Frozen([]uint64{8})
}
