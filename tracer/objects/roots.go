package objects

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/objects/native"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// Open opens the memory of a process. It is no error if the process has no Python: see NoPython.
// The caller closes the Heap, and then the process.
func Open(p *process.Process) (*Heap, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	h := &Heap{process: p, heads: []uint64{0}}
	h.allocator = liveness.AllocatorOf(p)

	found, err := python.Find(p, maps)
	switch {
	case err != nil:
		h.NoPython = err
	case found == nil:
		h.NoPython = ErrNoPython
	default:
		h.python, err = interpreter.Open(p, found)
		if err != nil {
			h.NoPython = err
			break
		}
		h.Python, h.structures = found.Version, h.python.Version()
		h.heads = append(h.heads, h.structures.GCHead)
		if h.structures.PreHeader > 0 {
			h.heads = append(
				h.heads,
				h.structures.PreHeader,
				h.structures.GCHead+h.structures.PreHeader,
			)
		}
	}

	return h, nil
}

// Close closes the files opened for memory and for the names of variables.
func (h *Heap) Close() (err error) {
	if h.statics != nil {
		err = h.statics.Close()
	}
	if h.reader != nil {
		err = errors.Join(err, h.reader.Close())
	}
	return err
}

// maxRefreshes is how often the memory is read where heaps change meanwhile.
const maxRefreshes = 5

// refresh finds the memory of now, and the roots in it.
func (h *Heap) refresh() (err error) {
	var maps []process.Mapping
	for range maxRefreshes {
		if maps, err = h.process.Maps(); err != nil {
			return err
		}
		h.heaps, err = h.allocator.Heaps(h.process, maps)
		if !errors.Is(err, glibc.ErrBrokenChain) {
			break
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return err
	}
	if h.statics != nil {
		_ = h.statics.Close()
	}
	if h.statics, err = native.Open(h.process, maps); err != nil {
		return err
	}
	if h.stacks, err = native.Stacks(h.process, maps); err != nil {
		return err
	}

	var others []region
	for _, s := range h.statics.Spans() {
		others = append(others, region{s, regionStatic})
	}
	for _, s := range h.stacks {
		if s.Known {
			others = append(others, region{mem.Span{Start: s.Start, End: s.End}, regionStack})
		}
	}
	if h.reader != nil {
		_ = h.reader.Close()
	}
	if h.reader, err = h.process.OpenMemory(); err != nil {
		return err
	}
	if err := h.readRuntime(); err != nil {
		return err
	}
	var frames []mem.Span
	for _, f := range h.frames {
		frames = append(frames, mem.Span{Start: f.Locals, End: f.End})
	}
	blocks, err := h.allocator.Blocks(h.process, maps)
	if errors.Is(err, process.ErrNotFound) {
		return err
	}
	h.memory, err = findMemory(
		h.process, h.reader, maps, h.heaps, others, mem.MergeSpans(frames), blocks,
	)
	if err != nil {
		return err
	}
	h.forget()
	h.storages = make(map[uint64]bool)
	h.types, h.notTypes = make(map[uint64]*typeInfo), make(map[uint64]struct{})
	return nil
}

// readRuntime reads the modules and the running frames of Python.
func (h *Heap) readRuntime() error {
	if h.python == nil {
		return nil
	}
	modules, err := h.python.Modules()
	if err != nil {
		return fmt.Errorf("read the modules of Python: %w", err)
	}
	h.modules = make(map[uint64]interpreter.Module, len(modules))
	for _, m := range modules {
		if _, has := h.modules[m.Dict]; !has && m.Dict != 0 {
			h.modules[m.Dict] = m
		}
	}
	h.frames, err = h.python.Frames()
	if err != nil {
		return fmt.Errorf("read the frames of Python: %w", err)
	}
	slices.SortFunc(
		h.frames,
		func(a, b interpreter.Frame) int { return cmp.Compare(a.Locals, b.Locals) },
	)
	return nil
}

// isRoot reports whether a node has a name: nothing that refers to it matters.
func (h *Heap) isRoot(n *node) bool {
	if n.typ == nil || n.sample {
		return false
	}
	if _, isModule := h.modules[n.address]; isModule {
		return true
	}
	if n.typ.kind != kindType {
		return false
	}
	t := h.typeOf(n.address)
	return t != nil && h.isNamed(t)
}

// isNamed reports whether a type can be reached by its name. Types that no module was asked for,
// such as types of C code, count as named.
func (h *Heap) isNamed(t *typeInfo) bool {
	if t.named != 0 {
		return t.named > 0
	}
	t.named = 1
	if t.module == "" {
		return true
	}
	outer, _, _ := strings.Cut(t.qualname, ".")
	t.named = -1
	for dict, m := range h.modules {
		if m.Name != t.module {
			continue
		}
		for _, e := range h.namespace(dict, maxNamespace) {
			if h.memory.budget.isSpent() {
				break
			}
			key, ok := h.python.Text(e.key)
			if !ok || key != outer {
				continue
			}
			of := h.typeOf(e.value)
			isWithin := outer != t.qualname && !strings.Contains(t.qualname, "<locals>")
			if of != nil && (isWithin || of == t) {
				t.named = 1
			}
			break
		}
	}

	return t.named > 0
}

// frameRoot returns the local variable of a running frame at an address; nil: there is none.
func (h *Heap) frameRoot(at uint64) *keeper.Root {
	i, found := slices.BinarySearchFunc(h.frames, at, func(f interpreter.Frame, a uint64) int {
		return cmp.Compare(f.Locals, a)
	})
	if !found {
		i--
	}
	if i < 0 || at >= h.frames[i].End {
		return nil
	}
	f := &h.frames[i]
	return &keeper.Root{
		Kind: keeper.RootLocal, Module: f.Module, File: f.File, Line: f.Line, Owner: f.Function,
		Name: variableAt(f, at),
	}
}

// variableAt returns the name of the variable at an address; empty: a value of the evaluation
// stack.
func variableAt(f *interpreter.Frame, at uint64) string {
	if i := (at - f.Locals) / wordSize; at >= f.Locals && i < uint64(len(f.Names)) {
		return f.Names[i]
	}
	return ""
}

// staticRoot returns the static variable at an address; nil: it is one of CPython's own.
func (h *Heap) staticRoot(at uint64) *keeper.Root {
	if h.structures != nil {
		if t := h.typeOf(at - h.structures.TypeDict); t != nil {
			return &keeper.Root{Kind: keeper.RootClass, Module: t.module, Owner: t.qualifiedName()}
		}
	}
	if h.statics.IsInterpreter(at) {
		return nil
	}
	file, symbol, offset, ok := h.statics.Find(at)
	if !ok {
		return nil
	}
	return &keeper.Root{Kind: keeper.RootStatic, Module: file, Name: symbol, Offset: offset}
}

func (t *typeInfo) qualifiedName() string {
	if t.module != "" {
		return t.qualname
	}
	return t.name
}

// stackRoot returns the thread whose stack has an address.
func (h *Heap) stackRoot(at uint64) *keeper.Root {
	for _, s := range h.stacks {
		if at >= s.Start && at < s.End {
			return &keeper.Root{Kind: keeper.RootThread, Owner: strconv.Itoa(s.TID), Name: s.Name}
		}
	}
	return nil
}
