package probe

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/tracer/process"
)

// searchOrder returns the files in the dynamic linker's search order. For a static program that is
// the program itself.
func searchOrder(p *process.Process, maps []process.Mapping) ([]process.Mapping, error) {
	order, err := p.LoadOrder(maps)
	if len(order) > 0 {
		return order, nil
	}
	program, programErr := programMapping(p, maps) // its error names the capability that is missing
	if programErr != nil {
		return nil, programErr
	}
	if err != nil && !errors.Is(err, process.ErrNoLinkMap) {
		return nil, err
	}
	return []process.Mapping{program}, nil
}

// programMapping finds the program among the mappings. The error wraps Err32Bit for a 32-bit
// program.
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

// otherFiles returns the mapped code that is not in the search order: libraries in other namespaces
// of the dynamic linker (dlmopen), and libraries of another loader.
func otherFiles(maps, order []process.Mapping) (others []process.Mapping) {
	seen := make(map[process.FileID]bool)
	for _, m := range order {
		seen[m.File()] = true
	}
	for _, m := range maps {
		if m.Execute && m.IsFile() && !seen[m.File()] {
			seen[m.File()] = true
			others = append(others, m)
		}
	}
	return others
}
