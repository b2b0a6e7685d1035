package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// namer turns the words of stacks of one process into frames.
type Namer struct {
	process     *process.Process
	Codes       *codeNames
	keepNatives bool              // the interpreter's own
	maps        []process.Mapping // executable ones
	files       map[process.FileID]*mappedFile
	modules     map[process.Mapping]*growth.Module
}

// A mappedFile keeps a file open; symbols is nil where it could not be read.
type mappedFile struct {
	file    *os.File
	symbols *symbol.File
}

func NewNamer(p *process.Process, keepNatives bool) *Namer {
	return &Namer{
		process: p, keepNatives: keepNatives, Codes: newCodeNames(p),
		files: make(map[process.FileID]*mappedFile), modules: make(map[process.Mapping]*growth.Module),
	}
}

// Why stacks end before the start of the thread.
var EndReasons = map[bpf.StackEnd]string{
	bpf.EndLimit:        "too many frames",
	bpf.EndNotReady:     "unwind table not ready yet",
	bpf.EndUnmapped:     "code at an unknown address",
	bpf.EndNoRule:       "code without unwind information",
	bpf.EndUnsupported:  "unwind information not supported",
	bpf.EndStackMemory:  "stack memory not readable",
	bpf.EndFramePointer: "no frame pointer",
}

// Why Python frames are missing.
var PythonErrors = map[bpf.PythonError]string{
	bpf.PythonNoThread: "Python thread not found",
	bpf.PythonMemory:   "Python frames not readable",
}

// truncation says in words why a stack is not whole; empty if it is.
func truncation(raw Raw) string {
	var reasons []string
	if reason := EndReasons[raw.end]; reason != "" {
		reasons = append(reasons, reason)
	}
	if reason := PythonErrors[raw.python]; reason != "" {
		reasons = append(reasons, reason)
	}
	return strings.Join(reasons, ", ")
}

// stack names the frames. Where there are Python frames, they stand for the native ones of the interpreter.
func (n *Namer) stack(raw Raw) *growth.Stack {
	s := &growth.Stack{ID: raw.ID, PID: n.process.PID, Truncated: truncation(raw)}
	var named []namedFrame
	lastNative, innerPython := raw.lastNative(), 0 // innerPython: frames up to the last of Python that the walk met
	for i := 0; i < len(raw.words); i++ {
		w := raw.words[i]
		if w.kind() != bpf.WordPython {
			named = append(named, n.native(w, i == 0))
			continue
		}
		if i++; i == len(raw.words) {
			break
		}
		frame, ok := n.Codes.frame(w, raw.words[i])
		if !ok {
			continue
		}
		at := len(named)
		if i > lastNative {
			at = innerPython // what was left at the end belongs to the last run
		}
		named = slices.Insert(named, at, namedFrame{Frame: frame})
		innerPython = at + 1
	}
	for _, f := range named {
		if innerPython == 0 || n.keepNatives || !f.internal {
			s.Frames = append(s.Frames, f.Frame)
		}
	}
	return s
}

// A namedFrame is a frame, and whether it is the interpreter's own.
type namedFrame struct {
	growth.Frame
	internal bool
}

// native names a native frame.
func (n *Namer) native(w word, first bool) namedFrame {
	pc := w.address()
	lookup := pc
	if !first && w.kind() != bpf.WordInterrupted {
		lookup-- // the call, which may be the last instruction of its function
	}
	m, ok := process.FindMapping(n.maps, lookup)
	if !ok {
		return namedFrame{Frame: growth.Frame{Address: pc, Function: fmt.Sprintf("[unknown]+%#x", pc)}}
	}
	frame := n.frame(m, pc, lookup)
	if w.kind() == bpf.WordFramePointer {
		frame.Function += " [by frame pointer]"
	}
	return namedFrame{frame, n.Codes.isInterpreter(m)}
}

// take keeps what is mapped executable and opens its files: the process may be gone when a stack is to be named.
func (n *Namer) setMappings(maps []process.Mapping) {
	n.maps = nil
	for _, m := range maps {
		if m.Execute {
			n.maps = append(n.maps, m)
			n.mappedFile(m)
		}
	}
}

// frame names one address. Without a name it is the file and the address in it that addr2line understands.
func (n *Namer) frame(m process.Mapping, pc, lookup uint64) growth.Frame {
	frame := growth.Frame{Address: pc, Module: n.module(m)}
	name := filepath.Base(frame.Module.Path)
	address := pc
	if m.IsFile() {
		address = pc - m.Start + m.Offset
	}
	if b := n.mappedFile(m); b.symbols != nil {
		if in, ok := b.symbols.Address(lookup - m.Start + m.Offset); ok {
			if frame.Function, ok = b.symbols.Name(in); ok {
				return frame
			}
			address = in + pc - lookup
		}
	}
	frame.Function = fmt.Sprintf("%s+%#x", name, address)
	return frame
}

func (n *Namer) module(m process.Mapping) *growth.Module {
	if module, ok := n.modules[m]; ok {
		return module
	}
	module := &growth.Module{Path: m.Path, Start: m.Start, Limit: m.End, Offset: m.Offset}
	if m.Path == "" {
		module.Path = "[anonymous]"
	}
	if b := n.mappedFile(m); b.symbols != nil {
		module.BuildID = b.symbols.BuildID()
	}
	n.modules[m] = module
	return module
}

// mappedFile opens the file of a mapping once. One that cannot be read, for whatever reason, has no symbols.
func (n *Namer) mappedFile(m process.Mapping) *mappedFile {
	id := m.File()
	if b, ok := n.files[id]; ok {
		return b
	}
	b := &mappedFile{}
	n.files[id] = b
	if !m.IsFile() {
		return b
	}
	f, err := n.process.OpenMapped(m)
	if err != nil {
		return b
	}
	b.file = f
	b.symbols, _ = symbol.New(f, strings.TrimSuffix(m.Path, " (deleted)"), n.process.Root())
	return b
}

func (n *Namer) close() error {
	var errs []error
	for _, b := range n.files {
		if b.symbols != nil {
			errs = append(errs, b.symbols.Close())
		}
		if b.file != nil {
			errs = append(errs, b.file.Close())
		}
	}
	return errors.Join(errs...)
}
