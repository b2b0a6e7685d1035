package interpreter

import (
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/python"
)

// maxVariables bounds the variables of a function: arguments, locals, cells and free variables.
const maxVariables = 1 << 12

// A code is a PyCodeObject.
type code struct {
	*python.Code
	names                    []string // of localsplus, in order
	argcount, kwonlyargcount int
	freevars, stacksize      int
}

// code reads a PyCodeObject.
func (r *reader) code(address uint64) (*code, bool) {
	s := r.version
	if !r.is(address, "PyCode_Type") {
		return nil, false
	}
	read, err := python.ReadCode(r, address, r.interpreter.CodeLayout)
	if err != nil {
		return nil, false
	}

	c := &code{Code: read}

	var tuples []uint64
	for _, member := range []uint64{
		s.CodeVarnames, s.CodeCellvars, s.CodeFreevars, s.CodeLocalsplusnames,
	} {
		if member == cpython.Absent {
			continue
		}
		tuple, ok := r.pointer(address + member)
		if !ok {
			return nil, false
		}
		tuples = append(tuples, tuple)
	}

	for _, tuple := range tuples {
		names, ok := r.names(tuple)
		if !ok {
			return nil, false
		}
		c.names, c.freevars = append(c.names, names...), len(names)
	}

	if s.CodeNlocalsplus != cpython.Absent {
		count, _ := r.int32(address + s.CodeNlocalsplus)
		free, _ := r.int32(address + s.CodeNfreevars)
		if int(count) != len(c.names) || free < 0 {
			return nil, false
		}
		c.freevars = int(free)
	}

	arguments, _ := r.int32(address + s.CodeArgcount)
	keywordOnly, _ := r.int32(address + s.CodeKwonlyargcount)
	stack, ok := r.int32(address + s.CodeStacksize)
	c.argcount, c.kwonlyargcount, c.stacksize = int(arguments), int(keywordOnly), int(stack)
	const maxStack = 1 << 20
	if !ok || arguments < 0 || keywordOnly < 0 || c.argcount+c.kwonlyargcount > len(c.names) ||
		c.freevars > len(c.names) || stack < 0 || stack > maxStack {
		return nil, false
	}

	return c, true
}

// names returns the texts in a tuple of strs.
func (r *reader) names(tuple uint64) ([]string, bool) {
	items, ok := r.items(tuple, maxVariables)
	if !ok {
		return nil, false
	}
	names := make([]string, len(items))
	for i, item := range items {
		if names[i], ok = r.text(item, maxText); !ok {
			return nil, false
		}
	}
	return names, true
}

// A Function has fields of a PyFunctionObject.
type Function struct {
	Qualname, Module string // Module is empty if it is no str
	File             string
	Line             int // at which it begins
	// Args are the names of the positional arguments, KeywordOnly the names of the others. Defaults
	// belong to the last NDefaults of Args.
	Args, KeywordOnly []string
	// FreeVars are the names of the variables of enclosing functions, in the order of Closure.
	FreeVars  []string
	NDefaults int
	// Addresses of the tuples and dicts; 0: it has none.
	Closure, Defaults, KwDefaults, Globals uint64
}

// Function returns the function at an address.
func (r *Runtime) Function(address uint64) (*Function, bool) {
	reader, s := r.newReader(), r.version
	if !reader.is(address, "PyFunction_Type") {
		return nil, false
	}
	at, ok := reader.pointer(address + s.FuncCode)
	if !ok {
		return nil, false
	}

	c, ok := reader.code(at)
	if !ok {
		return nil, false
	}

	keywordOnly := c.argcount + c.kwonlyargcount
	f := &Function{
		File: c.File, Line: c.FirstLine, Args: c.names[:c.argcount],
		KeywordOnly: c.names[c.argcount:keywordOnly], FreeVars: c.names[len(c.names)-c.freevars:],
	}
	name, _ := reader.word(address + s.FuncQualname)
	if f.Qualname, ok = reader.text(name, maxText); !ok {
		return nil, false
	}

	module, _ := reader.word(address + s.FuncModule)
	f.Module, _ = reader.text(module, maxText)

	for _, of := range []struct {
		field  *uint64
		member uint64
	}{
		{&f.Closure, s.FuncClosure},
		{&f.Defaults, s.FuncDefaults},
		{&f.KwDefaults, s.FuncKwdefaults},
		{&f.Globals, s.FuncGlobals},
	} {
		if *of.field, ok = reader.word(address + of.member); !ok {
			return nil, false
		}
	}

	if f.Defaults != 0 {
		defaults, ok := reader.items(f.Defaults, maxVariables)
		if !ok || len(defaults) > len(f.Args) {
			return nil, false
		}
		f.NDefaults = len(defaults)
	}

	return f, true
}
