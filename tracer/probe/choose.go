package probe

import (
	"fmt"
	"maps"
	"slices"

	"github.com/allocscope/allocscope/bpf"
)

// targets chooses the sites in each file.
func (d *definitions) targets() ([]Target, error) {
	allocators := make(map[string]bool)
	for name := range d.places {
		allocators[name] = true
	}
	called, number := make(map[string]bool), 0
	var targets []Target
	for _, file := range d.files {
		target, err := d.target(file, allocators, called)
		if err != nil {
			return nil, err
		}
		if len(target.Sites)+len(target.Unprobed) > 0 {
			targets = append(targets, target)
		}
	}
	for _, target := range targets {
		for i := range target.Sites {
			number++
			target.Sites[i].number = number
			target.Sites[i].called = slices.ContainsFunc(target.Sites[i].names, func(name string) bool { return called[name] })
		}
	}
	return targets, nil
}

// target chooses the sites in one file. called collects the names of functions that others call.
func (d *definitions) target(file *definingFile, allocators, called map[string]bool) (Target, error) {
	target := Target{File: file.mapping, Path: d.process.MappedPath(file.mapping)}
	imports, err := file.image.Imports(func(string) bool { return true })
	if err != nil {
		return target, fmt.Errorf("read imports of %s: %w", file.mapping.Path, err)
	}
	code := &flow{file: file.image, imports: imports, allocators: allocators, addresses: make(map[uint64]bool)}
	names := make(map[uint64]string)
	for _, f := range file.defined {
		code.addresses[f.address], names[f.address] = true, f.names[0]
	}
	chosen := sites{file: file, code: code, taken: make(map[uint64]bool), target: &target}
	for _, f := range file.defined {
		course, err := chosen.add(f)
		if err != nil {
			return target, fmt.Errorf("probe %s in %s: %w", f.function.Name, file.mapping.Path, err)
		}
		if course == nil {
			continue
		}
		maps.Copy(called, course.calls)
		for address := range course.addresses {
			called[names[address]] = true
		}
	}
	return target, nil
}

// sites collects those of one file.
type sites struct {
	file   *definingFile
	code   *flow
	taken  map[uint64]bool
	target *Target
}

// add chooses the site of a function, and those of its returns if it may throw, and gives its course. A function that only
// calls others has neither.
func (s *sites) add(f definition) (*course, error) {
	if !f.function.Differs && s.code.forwards(f.function, f.address) {
		return nil, nil
	}
	course := s.code.course(f.address)
	if f.function.Throws && (len(course.exits) == 0 || len(course.exits) > maxExits) {
		s.target.Unprobed = append(s.target.Unprobed, f.function.Name+": where it returns is not known")
		return nil, nil
	}
	if f.function.Form == bpf.KernelCallFormCALL_MALLOC && course.callsAny() {
		f.function.Form = bpf.KernelCallFormCALL_VALLOC
	}
	site, err := siteAt(s.file.image, f.function, f.address)
	if err != nil {
		return nil, err
	}
	site.names = f.names
	s.take(site)
	if f.function.Throws {
		return course, s.addExits(f.function, course)
	}
	return course, nil
}

// addExits adds the instructions by which a function returns. The kernel emulates none of them.
func (s *sites) addExits(function Function, course *course) error {
	exit := Function{Name: "return of " + function.Name, Form: bpf.KernelCallFormCALL_EXIT}
	for _, address := range course.exits {
		_, offset, err := s.file.image.Code(address, 1)
		if err != nil {
			return err
		}
		s.take(Site{Function: exit, Offset: offset, Reason: "single-stepped: a return probe would stop an exception"})
	}
	return nil
}

func (s *sites) take(site Site) {
	if !s.taken[site.Offset] {
		s.taken[site.Offset] = true
		s.target.Sites = append(s.target.Sites, site)
	}
}
