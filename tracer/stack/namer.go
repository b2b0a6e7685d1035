package stack

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/jit"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A Namer symbolizes the stacks of one process.
type Namer struct {
	process          *process.Process
	debugFiles       *symbol.DebugFiles
	root             string // of the process, for its debug files
	Codes            *codeNames
	generated        *jit.Names
	keepNativeFrames bool              // of the Python interpreter
	maps             []process.Mapping // executable ones
	generation       int               // of maps: how often they have changed
	files            map[process.FileID]*mappedFile
	uses             uint64 // of files
	symbolBytes      int    // of files
	modules          map[process.Mapping]*growth.Module
}

// maxOpenFiles bounds the files of a process that are open. A trainer that compiles maps a library
// for each kernel.
const maxOpenFiles = 512

// maxSymbolBytes bounds the symbol tables of a process. The table of a large file can take more:
// the last that was needed stays.
const maxSymbolBytes = 64 << 20

// A mappedFile is a file that was opened.
type mappedFile struct {
	symbols *symbol.File // nil: the file cannot be opened, or is damaged
	seen    int          // the last generation of the mappings that has it
	used    uint64       // when it was last needed, in uses
}

// NewNamer returns a Namer without mappings. It leaves the native frames of the Python interpreter
// out of stacks with Python frames, unless keepNativeFrames is set. own may be nil.
func NewNamer(
	p *process.Process, debugFiles *symbol.DebugFiles, keepNativeFrames bool, own *duty.Budget,
) *Namer {
	return &Namer{
		process:          p,
		debugFiles:       debugFiles,
		root:             p.HoldRoot(),
		Codes:            newCodeNames(p),
		generated:        jit.New(p, own.Account(duty.GeneratedNames)),
		keepNativeFrames: keepNativeFrames,
		files:            make(map[process.FileID]*mappedFile),
		modules:          make(map[process.Mapping]*growth.Module),
	}
}

// setMappings keeps the executable mappings. It opens their files at once, up to a bound: the process
// may have exited by the time a stack is named. It closes those that no generation since the oldest
// has: no stack asks for them.
// It returns false if the mappings are those that it has.
func (n *Namer) setMappings(maps []process.Mapping, oldest int) (changed bool) {
	var executable []process.Mapping
	for _, m := range maps {
		if m.Execute {
			executable = append(executable, m)
		}
	}
	if slices.Equal(executable, n.maps) {
		return false
	}

	n.maps = executable
	n.generation++
	for _, m := range executable {
		if f, ok := n.files[m.File()]; ok {
			f.seen = n.generation
		} else if len(n.files) < maxOpenFiles {
			n.mappedFile(m)
		}
	}
	n.forget(oldest)
	return true
}

// forget closes the files that no generation since the oldest has.
func (n *Namer) forget(oldest int) {
	for id, f := range n.files {
		if f.seen < oldest {
			n.closeFile(id)
		}
	}

	if len(n.modules) > 2*len(n.maps)+maxOpenFiles {
		clear(n.modules) // frames keep theirs
	}
}

// A namedFrame is a frame and whether the frame is the Python interpreter's own.
type namedFrame struct {
	growth.Frame
	isInterpreter bool
}

// stack names the frames by the executable mappings at the time of the stack. The BPF programs report Python frames where they meet the interpreter's
// native frames, and those that are left behind the last native frame.
func (n *Namer) stack(raw Raw, maps []process.Mapping) *growth.Stack {
	named := make([]namedFrame, 0, len(raw.words))
	lastNative := raw.lastNative()
	afterPython := 0 // index behind the last Python frame that the stack walk met
	for i := 0; i < len(raw.words); i++ {
		w := raw.words[i]
		if raw.gap > 0 && i == raw.gap {
			named = append(named, namedFrame{Frame: growth.Frame{Function: growth.FramesLeftOut}})
		}
		if w.kind() != bpf.WordPython {
			named = append(named, n.nativeFrame(raw, maps, i))
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
			at = afterPython // the frames that are left belong to the last run of the interpreter
		}
		named = slices.Insert(named, at, namedFrame{Frame: frame})
		afterPython = at + 1
	}

	s := &growth.Stack{ID: raw.ID, PID: n.process.PID, Truncated: raw.truncation()}
	s.Frames = make([]growth.Frame, 0, len(named)) // kept for the whole trace
	hasPython := afterPython > 0
	for _, f := range named {
		if !hasPython || n.keepNativeFrames || !f.isInterpreter {
			s.Frames = append(s.Frames, f.Frame)
		}
	}
	s.Frames = withoutShim(s.Frames)
	return s
}

// withoutShim leaves the shim's own frames out of the stack of a sample (package shim), which then
// begins at the caller of the allocator.
func withoutShim(frames []growth.Frame) []growth.Frame {
	if len(frames) == 0 || !isShim(frames[0]) || frames[0].Function != shim.AllocFunction {
		return frames
	}
	own := slices.IndexFunc(frames, func(f growth.Frame) bool { return !isShim(f) })
	if own < 0 { // the walk has ended there
		return []growth.Frame{{Function: growth.FrameUnknownCaller}}
	}
	return frames[own:]
}

// isShim reports whether a frame is in a copy of the shim, by the file's name.
func isShim(f growth.Frame) bool {
	return f.Module != nil && shim.HasName(f.Module.Path)
}

// nativeFrame names the native frame of a word.
func (n *Namer) nativeFrame(raw Raw, maps []process.Mapping, i int) namedFrame {
	w := raw.words[i]
	pc := w.address()
	lookup := pc
	if i > 0 && w.kind() != bpf.WordInterrupted {
		lookup-- // into the call, which may be the last instruction of its function
	}

	m, ok := process.FindMapping(maps, lookup)
	if !ok {
		unknown := growth.Frame{Address: pc, Function: fmt.Sprintf("[unknown]+%#x", pc)}
		return namedFrame{Frame: unknown}
	}

	frame, isNamed := n.frame(m, pc, lookup)
	if !isNamed {
		f, ok := n.generated.Find(lookup, raw.check)
		if !ok && n.generated.CheckSince(raw.check, m, maps) {
			f, ok = n.generated.Find(lookup, raw.check)
		}
		if ok {
			frame.Function, frame.File, frame.StartLine = f.Name, f.File, f.StartLine
			return namedFrame{Frame: frame, isInterpreter: f.IsTrampoline}
		}
	}
	if w.kind() == bpf.WordFramePointer {
		frame.Function += " " + growth.ByFramePointer
	}
	return namedFrame{Frame: frame, isInterpreter: n.Codes.isInterpreter(m)}
}

// frame names the function at lookup. Without a symbol the name is the file and pc in the form that
// addr2line(1) takes.
func (n *Namer) frame(m process.Mapping, pc, lookup uint64) (frame growth.Frame, isNamed bool) {
	frame = growth.Frame{Address: pc, Module: n.module(m)}
	address := pc
	if m.IsFile() {
		address = pc - m.Start + m.Offset
	}

	if f := n.mappedFile(m); f.symbols != nil {
		if virtual, ok := f.symbols.Address(lookup - m.Start + m.Offset); ok {
			if frame.Function, ok = n.nameOf(f, virtual); ok {
				return frame, true
			}
			address = virtual + pc - lookup
		}
	}

	frame.Function = fmt.Sprintf("%s+%#x", filepath.Base(frame.Module.Path), address)
	return frame, false
}

// nameOf names the function at an address of a file. The file's symbol table may take the place of
// others.
func (n *Namer) nameOf(f *mappedFile, virtual uint64) (name string, ok bool) {
	before := f.symbols.TableBytes()
	name, ok = f.symbols.Name(virtual)
	n.symbolBytes += f.symbols.TableBytes() - before
	for n.symbolBytes > maxSymbolBytes {
		if !n.closeOldest(func(other *mappedFile) bool { return other != f && other.symbols.TableBytes() > 0 }) {
			break
		}
	}
	return name, ok
}

func (n *Namer) module(m process.Mapping) *growth.Module {
	if module, ok := n.modules[m]; ok {
		return module
	}

	module := &growth.Module{Path: m.Path, Start: m.Start, Limit: m.End, Offset: m.Offset}
	if m.Path == "" {
		module.Path = growth.ModuleAnonymous
	}
	if f := n.mappedFile(m); f.symbols != nil {
		module.BuildID = f.symbols.BuildID()
	}

	n.modules[m] = module
	return module
}

// mappedFile opens the file of a mapping, unless it is open. If there are too many, it closes the
// one that was not needed for longest.
func (n *Namer) mappedFile(m process.Mapping) *mappedFile {
	n.uses++
	id := m.File()
	if f, ok := n.files[id]; ok {
		f.used = n.uses
		return f
	}

	if len(n.files) >= maxOpenFiles {
		n.closeOldest(func(*mappedFile) bool { return true })
	}
	f := &mappedFile{seen: n.generation, used: n.uses}
	n.files[id] = f
	if !m.IsFile() {
		return f
	}

	file, err := n.process.OpenMapped(m)
	if err != nil {
		return f
	}
	path := strings.TrimSuffix(m.Path, " (deleted)")
	f.symbols, _ = n.debugFiles.New(file, path, n.root)
	return f
}

// closeOldest closes the file that was not needed for longest, of those that may be closed; false:
// there is none.
func (n *Namer) closeOldest(may func(*mappedFile) bool) bool {
	var oldest *mappedFile
	var oldestID process.FileID
	for id, f := range n.files {
		if may(f) && (oldest == nil || f.used < oldest.used) {
			oldest, oldestID = f, id
		}
	}
	if oldest == nil {
		return false
	}
	n.closeFile(oldestID)
	return true
}

// closeFile closes a file, which is opened again if a stack leads through it while it is mapped.
func (n *Namer) closeFile(id process.FileID) {
	f := n.files[id]
	n.symbolBytes -= f.symbols.TableBytes()
	_ = f.symbols.Close() // it was only read
	delete(n.files, id)
}

func (n *Namer) close() error {
	var errs []error
	for _, f := range n.files {
		errs = append(errs, f.symbols.Close())
		f.symbols = nil
	}
	return errors.Join(errs...)
}
