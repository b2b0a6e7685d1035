package probe

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/torch"
)

// A tensorFunction allocates or frees the memory of PyTorch's CPU tensors.
type tensorFunction struct {
	Function
	names torch.Function
}

// tensorFunctions have free_cpu first, for the same reason as Functions. alloc_cpu throws where
// there is no memory.
var tensorFunctions = []tensorFunction{
	{
		Function{Name: torch.FreeCPU.Name, Form: bpf.CallFree, Tensor: true, Arguments: 1},
		torch.FreeCPU,
	},
	{
		Function{
			Name: torch.AllocCPU.Name, Form: bpf.CallAllocCpu, Throws: true, Tensor: true,
			Arguments: 1,
		},
		torch.AllocCPU,
	},
}

var (
	// ErrNotAligned means that an allocator has no function that returns aligned memory.
	ErrNotAligned = errors.New("the allocator has no posix_memalign")
	// ErrNoTensors means that a file does not export the functions for the memory of tensors.
	ErrNoTensors = errors.New("it exports no " + torch.AllocCPU.Name + " and " + torch.FreeCPU.Name)
)

// tensorLibrary exports these functions, unless PyTorch is linked into one file.
var tensorLibrary = StepFunction{Library: torch.LibC10}

// IsTensorLibrary reports by its path in the process's maps whether a file should export the
// functions for the memory of tensors. Other files may do so.
func IsTensorLibrary(file string) bool { return tensorLibrary.IsIn(file) }

// ResolveTensors finds the functions for the memory of tensors in a mapped file, and their sites.
// The error wraps ErrNoTensors if the file lacks either of them.
func ResolveTensors(p *process.Process, mapping process.Mapping) (FileSites, error) {
	return resolveFile(p, mapping, func(file *symbol.File) (found []definition, err error) {
		for _, f := range tensorFunctions {
			addresses, err := f.addresses(file, IsTensorLibrary(mapping.Path))
			if err != nil {
				return nil, fmt.Errorf("find %s in %s: %w", f.Name, mapping.Path, err)
			}
			for _, address := range addresses {
				found = append(found, definition{function: f.Function, address: address})
			}
		}
		return found, nil
	})
}

// addresses returns where the function is. A lookup of a known name costs a few reads. Where that
// fails and all is set, it compares the prefix with all names of the file.
func (f tensorFunction) addresses(file *symbol.File, all bool) (addresses []uint64, err error) {
	// A function that calls its overload counts once, as malloc inside calloc does.
	const maxOverloads = 4
	for _, name := range f.names.Known {
		if s, ok := file.Export(name); ok {
			return []uint64{s.Address}, nil
		}
	}

	if all {
		err = file.EachFunction(symbol.Dynsym, func(name []byte, address uint64, isLocal bool) {
			isFunction := bytes.HasPrefix(name, []byte(f.names.Prefix)) && !isLocal
			if isFunction && len(addresses) < maxOverloads && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		})
	}
	if err == nil && len(addresses) == 0 {
		err = ErrNoTensors
	}
	return addresses, err
}

// ResolveAligned finds the functions of the process's allocator that alloc_cpu may call: all that
// return aligned memory. They are probed for source tensor.
func ResolveAligned(p *process.Process, maps []process.Mapping) (aligned []FileSites, err error) {
	resolved, err := Resolve(p, maps)
	if err != nil {
		return nil, fmt.Errorf("find posix_memalign: %w", err)
	}

	for _, file := range resolved {
		file = file.only(Function.aligns)
		for i := range file.Sites {
			file.Sites[i].Function.Tensor = true
		}
		if len(file.Sites) > 0 {
			aligned = append(aligned, file)
		}
	}

	if len(aligned) == 0 {
		return nil, ErrNotAligned
	}
	return aligned, nil
}
