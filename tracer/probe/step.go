package probe

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A StepFunction is the function that a training program calls once for each step.
type StepFunction struct {
	// Library is the name of the file that defines it, without folders, with or without ".so" and a
	// version behind it.
	Library string
	// Symbol is its name, mangled or demangled, or a prefix that no other function has.
	Symbol string
}

// BackwardPass is torch::autograd::Engine::execute, which PyTorch calls once for each backward
// pass. Its parameters are a part of the mangled name, and differ by version.
var BackwardPass = StepFunction{torch.LibTorchCPU, torch.EngineExecute}

// ParseStepFunction reads LIB:SYMBOL; empty text means BackwardPass.
func ParseStepFunction(text string) (StepFunction, error) {
	if text == "" {
		return BackwardPass, nil
	}
	library, name, _ := strings.Cut(text, ":")
	if library == "" || strings.Contains(library, "/") || name == "" || name[0] == ':' {
		return StepFunction{}, fmt.Errorf("parse step function %q: not of the form LIB:SYMBOL "+
			"(such as libtorch_cpu:torch::autograd::Engine::execute)", text)
	}
	return StepFunction{library, name}, nil
}

// IsIn reports by its path in the process's maps whether a file is the library.
func (f StepFunction) IsIn(file string) bool {
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	stem, _, _ := strings.Cut(name, ".so")
	return name == f.Library || stem == f.Library
}

// Resolve finds the function in a mapped file, and its site.
func (f StepFunction) Resolve(p *process.Process, mapping process.Mapping) (FileSites, error) {
	return resolveFile(p, mapping, func(file *symbol.File) ([]definition, error) {
		found, err := f.find(file)
		if err != nil {
			name := growth.Printable(f.Symbol)
			return nil, fmt.Errorf("find step function %s in %s: %w", name, mapping.Path, err)
		}
		return []definition{{function: Function{Name: found.name}, address: found.address}}, nil
	})
}

// A namedFunction is a function that matches a step function's symbol.
type namedFunction struct {
	name    string // in the symbol table, printable
	address uint64 // virtual, as in the file
}

var (
	errNoStepFunction = errors.New("no such function")
	errManySymbols    = errors.New("demangling takes too long (name the mangled function)")
)

// find looks for the function by ever weaker rules: the mangled name, its prefix, the demangled
// name, its prefix. Each rule tries the exported functions first.
func (f StepFunction) find(file *symbol.File) (namedFunction, error) {
	isName := func(name string) bool { return name == f.Symbol }
	begins := func(name string) bool { return strings.HasPrefix(name, f.Symbol) }
	for _, demangle := range []bool{false, true} {
		for _, matches := range []func(string) bool{isName, begins} {
			for _, table := range []symbol.Table{symbol.Dynsym, symbol.Symtab} {
				found, err := match(file, table, demangle, matches)
				if err != nil || len(found.list) > 0 {
					return found.only(err)
				}
			}
		}
	}

	return namedFunction{}, errNoStepFunction
}

// demangleTimeout bounds the time for the names of a file: a hostile one can have millions.
const demangleTimeout = 3 * time.Second

// match returns the functions of a table whose name, demangled or not, matches.
func match(
	file *symbol.File, table symbol.Table, demangle bool, matches func(string) bool,
) (found candidates, err error) {
	began, late := time.Now(), false
	err = file.EachFunction(table, func(raw []byte, address uint64, isLocal bool) {
		name := string(raw)
		if late || isLocal && strings.Contains(name, ".cold") { // a part of a function
			return
		}

		if demangle {
			name = symbol.Demangle(name)
			late = time.Since(began) > demangleTimeout
		}
		if matches(name) {
			found.add(string(raw), address)
		}
	})
	if err == nil && late {
		err = errManySymbols
	}
	return found, err
}

// candidates are the functions that match, one for each address.
type candidates struct {
	list   []namedFunction
	isMore bool // there are more than in list
}

// add adds a function, unless the list is full.
func (c *candidates) add(name string, address uint64) {
	const maxCandidates, maxName = 8, 200
	for _, known := range c.list {
		if known.address == address {
			return
		}
	}

	if len(c.list) == maxCandidates {
		c.isMore = true
		return
	}
	name = growth.Printable(name[:min(len(name), maxName)])
	c.list = append(c.list, namedFunction{name, address})
}

// only returns the one candidate, or an error that lists them all.
func (c candidates) only(err error) (namedFunction, error) {
	if err != nil {
		return namedFunction{}, err
	}
	if len(c.list) == 1 {
		return c.list[0], nil
	}

	var names []string
	for _, f := range c.list {
		names = append(names, f.name)
	}

	if c.isMore {
		names = append(names, "...")
	}
	return namedFunction{}, fmt.Errorf("several functions match: %s (name one of them)",
		strings.Join(names, ", "))
}
