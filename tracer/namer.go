package tracer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// namer turns program counters of one process into frames.
type namer struct {
	process *process.Process
	maps    []process.Mapping // executable ones
	stale   bool              // maps may lack a new one
	files   map[fileID]*mappedFile
	modules map[process.Mapping]*growth.Module
}

// A mappedFile keeps a file open; symbols is nil where it could not be read.
type mappedFile struct {
	file    *os.File
	symbols *symbol.File
}

func newNamer(p *process.Process) *namer {
	return &namer{process: p, stale: true, files: make(map[fileID]*mappedFile), modules: make(map[process.Mapping]*growth.Module)}
}

// Reasons for which a stack ends before the start of its thread.
const (
	truncatedAtLimit  = "more than 127 frames"
	truncatedNoFrames = "no frame pointer"
)

// stack names the frames. The first is where the thread stood, the others are return addresses; the second is a guess by
// the kernel side, which does not know whether the function had a frame, and counts only if it is an address of code.
func (n *namer) stack(pcs []uint64) *growth.Stack {
	s := &growth.Stack{PID: n.process.PID}
	for i, pc := range pcs {
		lookup := pc
		if i > 0 {
			lookup-- // the call, which may be the last instruction of its function
		}
		mapping, ok := n.find(lookup)
		if !ok && i == 1 {
			continue
		}
		if !ok {
			break
		}
		s.Frames = append(s.Frames, n.frame(mapping, pc, lookup))
	}
	switch {
	case len(pcs) == bpf.MaxFrames:
		s.Truncated = truncatedAtLimit
	case !reachesStart(s.Frames):
		s.Truncated = truncatedNoFrames
	}
	return s
}

// Functions with which threads begin. Below main there is nothing that a user would miss.
var threadStarts = map[string]bool{
	"main": true, "_start": true, "__libc_start_main": true, "__libc_start_call_main": true, "start_thread": true,
	"clone": true, "__clone": true, "clone3": true, "__clone3": true, "thread_start": true,
}

func reachesStart(frames []growth.Frame) bool {
	for _, f := range frames {
		if threadStarts[f.Function] {
			return true
		}
	}
	return false
}

// find gives the executable mapping of an address, reading the memory map again if it has changed.
func (n *namer) find(address uint64) (process.Mapping, bool) {
	if m, ok := process.Find(n.maps, address); ok || !n.stale {
		return m, ok
	}
	maps, err := n.process.Maps()
	if err != nil {
		return process.Mapping{}, false
	}
	n.stale = false
	n.take(maps)
	return process.Find(n.maps, address)
}

// take keeps what is mapped executable and opens its files: the process may be gone when a stack is to be named.
func (n *namer) take(maps []process.Mapping) {
	n.maps = nil
	for _, m := range maps {
		if m.Execute {
			n.maps = append(n.maps, m)
			n.mappedFile(m)
		}
	}
}

// frame names one address. Without a name it is the file and the address in it that addr2line understands.
func (n *namer) frame(m process.Mapping, pc, lookup uint64) growth.Frame {
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

func (n *namer) module(m process.Mapping) *growth.Module {
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
func (n *namer) mappedFile(m process.Mapping) *mappedFile {
	id := fileID{m.Device, m.Inode}
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

func (n *namer) close() error {
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

// A fileID tells files apart, whatever their names.
type fileID struct{ device, inode uint64 }
