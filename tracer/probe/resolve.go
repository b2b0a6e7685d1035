package probe

import (
	"errors"
	"fmt"

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
}

// Reasons for which a process's allocator cannot be probed.
var (
	ErrNoAllocator = errors.New("no malloc symbol in any of its files (a static, stripped program?)")
	Err32Bit       = symbol.Err32Bit
)

const codeLength = 64 // bytes of a function that are looked at

// Resolve finds the allocator functions that the process really uses: for each name the first file in the dynamic
// linker's search order that defines it. The search ends with the C library, which defines all there are.
func Resolve(p *process.Process, maps []process.Mapping) ([]Target, error) {
	order, err := searchOrder(p, maps)
	if err != nil {
		return nil, err
	}
	var targets []Target
	missing := append([]Function(nil), Functions...)
	for _, mapping := range order {
		target := Target{File: mapping, Path: p.MappedPath(mapping)}
		var last bool
		target.Sites, missing, last, err = resolveFile(p, mapping, missing, len(order) == 1)
		if err != nil {
			return nil, err
		}
		if len(target.Sites) > 0 {
			targets = append(targets, target)
		}
		if last || len(missing) == 0 {
			break
		}
	}
	if !defines(targets, "malloc") || !defines(targets, "free") {
		return nil, ErrNoAllocator
	}
	return targets, nil
}

func defines(targets []Target, name string) bool {
	for _, t := range targets {
		for _, s := range t.Sites {
			if s.Function.Name == name {
				return true
			}
		}
	}
	return false
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
		f, err := p.OpenMapped(m)
		if err != nil {
			return m, err
		}
		defer f.Close()
		_, err = symbol.Open(f, m.Path)
		return m, err
	}
	return process.Mapping{}, fmt.Errorf("find program: %s is not mapped", p.Executable)
}

// resolveFile gives the sites of those functions that the file defines, the functions still missing, and whether the file
// is the C library.
func resolveFile(p *process.Process, mapping process.Mapping, wanted []Function, static bool) (sites []Site, missing []Function, last bool, err error) {
	f, err := p.OpenMapped(mapping)
	if err != nil {
		return nil, wanted, false, err
	}
	defer f.Close()
	file, err := symbol.Open(f, mapping.Path)
	if err != nil {
		return nil, wanted, false, err
	}
	symbols, err := definedFunctions(file, static)
	if err != nil {
		return nil, wanted, false, fmt.Errorf("read symbols of %s: %w", mapping.Path, err)
	}
	taken := make(map[uint64]bool)
	for _, function := range wanted {
		address, ok := symbols[function.Name]
		if !ok {
			missing = append(missing, function)
			continue
		}
		site, err := siteAt(file, function, address)
		if err != nil {
			return nil, wanted, false, fmt.Errorf("probe %s in %s: %w", function.Name, mapping.Path, err)
		}
		if !taken[site.Offset] { // aligned_alloc and memalign are one function in some C libraries
			sites = append(sites, site)
		}
		taken[site.Offset] = true
	}
	_, last = symbols[startOfC]
	return sites, missing, last, nil
}

// startOfC is a function that no file but the C library defines.
const startOfC = "__libc_start_main"

var wantedNames = func() map[string]bool {
	names := map[string]bool{startOfC: true}
	for _, f := range Functions {
		names[f.Name] = true
	}
	return names
}()

// definedFunctions gives the addresses of the wanted functions that a file exports. A static program exports none: there all
// count.
func definedFunctions(file *symbol.File, static bool) (map[string]uint64, error) {
	if static {
		if defined, err := file.Functions(symbol.Static, wantedNames); err != nil || len(defined) > 0 {
			return defined, err
		}
	}
	return file.Functions(symbol.Dynamic, wantedNames)
}

// siteAt reads the code of a function and chooses its site.
func siteAt(file *symbol.File, function Function, address uint64) (Site, error) {
	code, offset, err := file.Code(address, codeLength)
	if err != nil {
		return Site{}, err
	}
	return chooseSite(function, file.Machine(), code, offset), nil
}
