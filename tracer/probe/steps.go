package probe

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A StepFunction is the function that a training program calls once for each step.
type StepFunction struct {
	// Library is the name of the file that defines it, without folders, or what stands before ".so" in that name.
	Library string
	// Symbol is its name in a symbol table or demangled, or the beginning of either where no other function's is the same.
	Symbol string
}

// BackwardPass is what PyTorch calls once for each backward pass, torch::autograd::Engine::execute. Its parameters, which are
// part of the mangled name, differ by version.
var BackwardPass = StepFunction{"libtorch_cpu", "_ZN5torch8autograd6Engine7executeE"}

// ParseStepFunction reads LIB:SYMBOL; empty text means BackwardPass.
func ParseStepFunction(text string) (StepFunction, error) {
	if text == "" {
		return BackwardPass, nil
	}
	library, name, _ := strings.Cut(text, ":")
	if library == "" || strings.Contains(library, "/") || name == "" || name[0] == ':' {
		return StepFunction{}, fmt.Errorf("parse step function %q: not of the form LIB:SYMBOL (such as libtorch_cpu:torch::autograd::Engine::execute)", text)
	}
	return StepFunction{library, name}, nil
}

// IsIn reports whether a file, by its path in the process's maps, is the one that is meant.
func (f StepFunction) IsIn(file string) bool {
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	stem, _, _ := strings.Cut(name, ".so")
	return name == f.Library || stem == f.Library
}

// Resolve finds the function in a mapped file, and its site.
func (f StepFunction) Resolve(p *process.Process, mapping process.Mapping) (Target, error) {
	opened, err := p.OpenMapped(mapping)
	if err != nil {
		return Target{}, err
	}
	defer opened.Close()
	file, err := symbol.Open(opened, mapping.Path)
	if err != nil {
		return Target{}, err
	}
	found, err := f.find(file)
	if err != nil {
		return Target{}, fmt.Errorf("find step function %s in %s: %w", process.Printable(f.Symbol), mapping.Path, err)
	}
	site, err := siteAt(file, Function{Name: found.name}, found.address)
	if err != nil {
		return Target{}, fmt.Errorf("probe %s in %s: %w", found.name, mapping.Path, err)
	}
	return Target{File: mapping, Path: p.MappedPath(mapping), Sites: []Site{site}}, nil
}

// AttachStep attaches a program to the one site of a step function in the given process. A perf event does in all modes:
// a single probe that fires a few times a second need not be cheap to attach.
func AttachStep(target Target, program *ebpf.Program, pid int) (link.Link, error) {
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", target.File.Path, err)
	}
	site := target.Sites[0]
	l, err := file.Uprobe("", program, &link.UprobeOptions{Address: site.Offset, PID: pid})
	if err != nil {
		return nil, fmt.Errorf("attach to %s in %s: %w", site.Function.Name, target.File.Path, err)
	}
	return l, nil
}

// A namedFunction is one that a name may mean: its name in the symbol table, printable, and its virtual address.
type namedFunction struct {
	name    string
	address uint64
}

var (
	errNoStepFunction = errors.New("no such function")
	errManySymbols    = errors.New("demangling takes too long (name the function as the symbol table does)")
)

// find looks for the function by ever weaker rules, each in what the file exports first.
func (f StepFunction) find(file *symbol.File) (namedFunction, error) {
	isName := func(name string) bool { return name == f.Symbol }
	begins := func(name string) bool { return strings.HasPrefix(name, f.Symbol) }
	for _, demangle := range []bool{false, true} {
		for _, matches := range []func(string) bool{isName, begins} {
			for _, table := range []symbol.Table{symbol.Dynamic, symbol.Static} {
				found, err := match(file, table, demangle, matches)
				if err != nil || len(found.list) > 0 {
					return found.only(err)
				}
			}
		}
	}
	return namedFunction{}, errNoStepFunction
}

// longestMatch is how long the names of a file are demangled: a hostile one can have millions.
const longestMatch = 3 * time.Second

// match gives the functions of a table whose name, demangled or not, is matched.
func match(file *symbol.File, table symbol.Table, demangle bool, matches func(string) bool) (found candidates, err error) {
	began, late := time.Now(), false
	err = file.EachFunction(table, func(raw []byte, address uint64, isLocal bool) {
		name := string(raw)
		if late || isLocal && strings.Contains(name, ".cold") { // a part of a function
			return
		}
		if demangle {
			name = symbol.Demangle(name)
			late = time.Since(began) > longestMatch
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

// candidates are functions that a name may mean, one for each address.
type candidates struct {
	list []namedFunction
	more bool // than are listed
}

func (c *candidates) add(name string, address uint64) {
	const most, longest = 8, 200
	for _, known := range c.list {
		if known.address == address {
			return
		}
	}
	if len(c.list) == most {
		c.more = true
		return
	}
	c.list = append(c.list, namedFunction{process.Printable(name[:min(len(name), longest)]), address})
}

// only gives the one candidate, or an error that lists them.
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
	if c.more {
		names = append(names, "...")
	}
	return namedFunction{}, fmt.Errorf("several functions match: %s (name one of them)", strings.Join(names, ", "))
}
