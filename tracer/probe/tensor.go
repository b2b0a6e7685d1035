package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A tensorFunction serves the memory of tensors on the CPU (c10/core/impl/alloc_cpu.h). Its parameters, which are part of
// the mangled name, may differ by version of PyTorch. The one that allocates throws where there is no memory.
type tensorFunction struct {
	Function        // by its name for people
	prefix   string // of the mangled name
	usual    string // the mangled name in all versions up to 2.14
}

// free_cpu comes first, as free does in Functions.
var tensorFunctions = []tensorFunction{
	{Function{Name: "c10::free_cpu", Form: bpf.KernelCallFormCALL_FREE, Tensor: true, Arguments: 1}, "_ZN3c108free_cpuE", "_ZN3c108free_cpuEPv"},
	{Function{Name: "c10::alloc_cpu", Form: bpf.KernelCallFormCALL_ALLOC_CPU, Throws: true, Tensor: true, Arguments: 1}, "_ZN3c109alloc_cpuE", "_ZN3c109alloc_cpuEm"},
}

// ResolveAligned finds the functions of the process's allocator that the one for tensors may ask for memory: all that give
// aligned memory. They are followed in its place.
func ResolveAligned(p *process.Process, maps []process.Mapping) (targets []Target, err error) {
	resolved, err := Resolve(p, maps)
	if err != nil {
		return nil, fmt.Errorf("find posix_memalign: %w", err)
	}
	for _, target := range resolved {
		target.Sites = slices.DeleteFunc(target.Sites, func(s Site) bool { return !s.Function.aligns() })
		for i := range target.Sites {
			target.Sites[i].Function.Tensor = true
		}
		if len(target.Sites) > 0 {
			targets = append(targets, target)
		}
	}
	if len(targets) == 0 {
		return nil, ErrNotAligned
	}
	return targets, nil
}

// ErrNotAligned means that an allocator has no function that gives aligned memory.
var ErrNotAligned = errors.New("the allocator has no posix_memalign")

// ErrNoTensors means that a file does not export the functions that serve the memory of tensors.
var ErrNoTensors = errors.New("it exports no c10::alloc_cpu and c10::free_cpu")

// tensorLibrary is the one that exports them, where PyTorch is not linked into one file.
var tensorLibrary = StepFunction{Library: "libc10"}

// IsTensorLibrary tells by its path in the process's maps whether a file ought to export the functions that serve the memory
// of tensors. Others may.
func IsTensorLibrary(file string) bool { return tensorLibrary.IsIn(file) }

// ResolveTensors finds the functions that serve the memory of tensors in a mapped file, and their sites. The error wraps
// ErrNoTensors if the file lacks either of them.
func ResolveTensors(p *process.Process, mapping process.Mapping) (Target, error) {
	opened, err := p.OpenMapped(mapping)
	if err != nil {
		return Target{}, err
	}
	defer opened.Close()
	file, err := symbol.Open(opened, mapping.Path)
	if err != nil {
		return Target{}, err
	}
	target := Target{File: mapping, Path: p.MappedPath(mapping)}
	for _, f := range tensorFunctions {
		addresses, err := f.addresses(file, IsTensorLibrary(mapping.Path))
		if err != nil {
			return Target{}, fmt.Errorf("find %s in %s: %w", f.Name, mapping.Path, err)
		}
		for _, address := range addresses {
			site, err := siteAt(file, f.Function, address)
			if err != nil {
				return Target{}, fmt.Errorf("probe %s in %s: %w", f.Name, mapping.Path, err)
			}
			target.Sites = append(target.Sites, site)
		}
	}
	return target, nil
}

// mostOverloads of a function are probed. One that calls another counts once, as malloc inside calloc does.
const mostOverloads = 4

// addresses are where the function is, by its usual name, which costs a few reads, or else by what all its names begin with,
// which costs reading all names.
func (f tensorFunction) addresses(file *symbol.File, all bool) (addresses []uint64, err error) {
	if s, ok := file.Export(f.usual); ok {
		return []uint64{s.Address}, nil
	}
	if all {
		err = file.EachFunction(symbol.Dynamic, func(name []byte, address uint64, isLocal bool) {
			known := bytes.HasPrefix(name, []byte(f.prefix)) && !isLocal
			if known && len(addresses) < mostOverloads && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		})
	}
	if err == nil && len(addresses) == 0 {
		err = ErrNoTensors
	}
	return addresses, err
}
