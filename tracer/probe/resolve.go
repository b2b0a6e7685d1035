package probe

import (
	"errors"
	"fmt"
	"os"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A Target is one file of a process and the sites in it.
type Target struct {
	// File is the mapping through which the file is opened.
	File process.Mapping
	// Path under which the kernel finds the file.
	Path  string
	Sites []Site
	// Unprobed are functions that cannot be probed, each with its reason, for people.
	Unprobed []string
}

// Functions are the names of those that are probed.
func (t Target) Functions() []string {
	var names []string
	for _, s := range t.Sites {
		if s.Function.Form != bpf.KernelCallFormCALL_EXIT {
			names = append(names, s.Function.Name)
		}
	}
	return names
}

// Reasons for which a process's allocator cannot be probed.
var (
	ErrNoAllocator = errors.New("no malloc symbol in any of its files (a static, stripped program?)")
	Err32Bit       = symbol.Err32Bit
)

const codeLength = 64 // bytes of a function that are looked at

// Resolve finds the allocator functions that the process really uses: for each name the first file in the dynamic
// linker's search order that defines it. For malloc and its relatives the search ends with the C library, which defines all
// there are. Of functions that only call others of them, those others are probed.
func Resolve(p *process.Process, maps []process.Mapping) ([]Target, error) {
	order, err := searchOrder(p, maps)
	if err != nil {
		return nil, err
	}
	found := definitions{process: p, static: len(order) == 1, places: make(map[string]int)}
	defer found.close()
	for _, mapping := range order {
		if err := found.add(mapping); err != nil {
			return nil, err
		}
	}
	if !found.has("malloc") || !found.has("free") {
		return nil, ErrNoAllocator
	}
	if err := found.refuseOperators(); err != nil {
		return nil, err
	}
	return found.targets()
}

// searchOrder is the dynamic linker's list; of a static program, the program itself.
func searchOrder(p *process.Process, maps []process.Mapping) ([]process.Mapping, error) {
	program, err := programMapping(p, maps)
	if err != nil {
		return nil, err
	}
	order, err := p.LoadOrder(maps)
	if errors.Is(err, process.ErrNoLinkMap) {
		return []process.Mapping{program}, nil
	}
	return order, err
}

// programMapping finds the program among the mappings and checks that it is of a class we know.
func programMapping(p *process.Process, maps []process.Mapping) (process.Mapping, error) {
	for _, m := range maps {
		if m.Path != p.Executable || !m.IsFile() {
			continue
		}
		f, _, err := openFile(p, m)
		if err == nil {
			f.Close()
		}
		return m, err
	}
	return process.Mapping{}, fmt.Errorf("find program: %s is not mapped", p.Executable)
}

func openFile(p *process.Process, mapping process.Mapping) (*os.File, *symbol.File, error) {
	f, err := p.OpenMapped(mapping)
	if err != nil {
		return nil, nil, err
	}
	file, err := symbol.Open(f, mapping.Path)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, file, nil
}

// siteAt reads the code of a function and chooses its site.
func siteAt(file *symbol.File, function Function, address uint64) (Site, error) {
	code, offset, err := file.Code(address, codeLength)
	if err != nil {
		return Site{}, err
	}
	return chooseSite(function, file.Machine(), code, offset), nil
}
