package objects

import (
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/objects/interpreter"
	"github.com/allocscope/allocscope/tracer/objects/native"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/torch"
)

// roots have the memory that keeps objects without being referred to: modules, classes, running
// functions, static variables and the stacks of threads.
type roots struct {
	pages   *pageCache
	types   *typeTable // nil: without Python
	statics *native.Statics
	stacks  []native.Stack
	modules map[uint64]interpreter.Module // by the address of their dict
	frames  []interpreter.Frame           // that run, in the order of their addresses
	// storages are addresses in files: whether each is the vtable of a StorageImpl of PyTorch.
	storages map[uint64]bool
}

// regions returns the memory with static variables, and the live parts of the known stacks.
func (r *roots) regions() (regions []region) {
	for _, s := range r.statics.Spans() {
		regions = append(regions, region{s, regionStatic})
	}
	for _, s := range r.stacks {
		if s.Known {
			regions = append(regions, region{mem.Span{Start: s.Start, End: s.End}, regionStack})
		}
	}
	return regions
}

// frameSpans returns the memory of the variables of running functions.
func (r *roots) frameSpans() mem.Spans {
	var frames []mem.Span
	for _, f := range r.frames {
		frames = append(frames, mem.Span{Start: f.Locals, End: f.End})
	}
	return mem.MergeSpans(frames)
}

// isRoot reports whether a node has a name: nothing that refers to it matters.
func (r *roots) isRoot(n *node) bool {
	if n.typ == nil || n.sample {
		return false
	}
	if _, isModule := r.modules[n.address]; isModule {
		return true
	}
	if n.typ.kind != kindType {
		return false
	}
	t := r.types.at(n.address)
	return t != nil && r.isNamed(t)
}

// isNamed reports whether a type can be reached by its name. Types that no module was asked for,
// such as types of C code, count as named.
func (r *roots) isNamed(t *typeInfo) bool {
	if t.named != 0 {
		return t.named > 0
	}
	t.named = 1
	if t.module == "" {
		return true
	}

	// A class that a function has made may have the name of another class of the module. Other
	// objects keep it then, such as its instances.
	outer, _, _ := strings.Cut(t.qualname, ".")
	t.named = -1
	isLocal := strings.Contains(t.qualname, "<locals>")
	for dict, m := range r.modules {
		if m.Name != t.module {
			continue
		}
		value, ok := r.types.python.Lookup(dict, outer, maxNamespace)
		if !ok {
			continue
		}
		isWithin := outer != t.qualname && !isLocal
		if found := r.types.at(value); found != nil && (isWithin || found == t) {
			t.named = 1
		}
	}
	return t.named > 0
}

// frameRoot returns the local variable of a running frame at an address; nil: there is none.
func (r *roots) frameRoot(at uint64) *keeper.Root {
	i := lastAt(r.frames, at, func(f interpreter.Frame) uint64 { return f.Locals })
	if i < 0 || at >= r.frames[i].End {
		return nil
	}

	f := &r.frames[i]
	return &keeper.Root{
		Kind: keeper.RootLocal, Module: f.Module, File: f.File, Line: f.Line, Owner: f.Function,
		Name: variableAt(f, at),
	}
}

// staticRoot returns the static variable at an address; nil: it is one of an interpreter's own.
func (r *roots) staticRoot(at uint64) *keeper.Root {
	// The dict of a static type is in a variable of the file that has the type.
	if r.types != nil {
		if t := r.types.at(at - r.types.version.TypeDict); t != nil {
			return &keeper.Root{Kind: keeper.RootClass, Module: t.module, Owner: t.qualifiedName()}
		}
	}

	// An interpreter's own variables lead to nearly all objects, and their names say nothing.
	if r.statics.IsInterpreter(at) {
		return nil
	}
	file, symbol, offset, ok := r.statics.Find(at)
	if !ok {
		return nil
	}
	return &keeper.Root{Kind: keeper.RootStatic, Module: file, Name: symbol, Offset: offset}
}

// stackRoot returns the thread whose stack has an address; nil: it may be the stack of an
// interpreter, whose functions lead to its whole heap.
func (r *roots) stackRoot(at uint64) *keeper.Root {
	if r.statics.Interpreter() != "" {
		return nil
	}
	for _, s := range r.stacks {
		if at >= s.Start && at < s.End {
			return &keeper.Root{Kind: keeper.RootThread, Owner: strconv.Itoa(s.TID), Name: s.Name}
		}
	}
	return nil
}

// classOf returns the class that a dict has the attributes of; nil: it is none that has a name.
func (r *roots) classOf(n *node) *typeInfo {
	for _, e := range n.edges {
		f := e.from
		if f == nil || f.typ == nil || f.typ.kind != kindType ||
			e.at != f.address+r.types.version.TypeDict {
			continue
		}
		if t := r.types.at(f.address); t != nil && r.isNamed(t) {
			return t
		}
	}
	return nil
}

// fileOf returns the file of a module by its name; empty: it is not known.
func (r *roots) fileOf(module string) string {
	for _, m := range r.modules {
		if m.Name == module {
			return r.types.python.FileOf(m)
		}
	}
	return ""
}

// isStorage reports whether a block is a StorageImpl of PyTorch: it leads to numbers.
func (r *roots) isStorage(n *node) bool {
	vtable := n.first
	if isOne, ok := r.storages[vtable]; ok {
		return isOne
	}

	m, ok := process.FindMapping(r.pages.memory.maps, vtable)
	isOne := ok && torch.HasStorageImpl(m) &&
		r.statics.Constant(m, vtable) == torch.StorageImplVtable
	if ok && m.IsFile() && len(r.storages) < maxTypes {
		r.storages[vtable] = isOne
	}
	return isOne
}

// variableAt returns the name of the variable at an address; empty: a value of the evaluation
// stack.
func variableAt(f *interpreter.Frame, at uint64) string {
	if i := (at - f.Locals) / wordSize; at >= f.Locals && i < uint64(len(f.Names)) {
		return f.Names[i]
	}
	return ""
}
