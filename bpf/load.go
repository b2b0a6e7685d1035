package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
)

// Loaded is the BPF object in the kernel: its maps and variables from the start, and each program
// from its first use. A program that walks stacks takes the verifier 0.07 s, and a trace needs only
// the programs of its sources.
type Loaded struct {
	Maps
	Variables

	all map[string]*ebpf.Map // the maps of Maps, and the sections of data

	mu       sync.Mutex // guards the fields below
	specs    map[string]*ebpf.ProgramSpec
	programs map[string]*ebpf.Program
}

// Load loads the maps and variables of a spec of LoadKernel into the kernel. The spec belongs to
// Loaded from now on, and a program that the caller has deleted from it is not there.
//
// The errors come from ebpf.NewCollectionWithOptions.
func Load(spec *ebpf.CollectionSpec) (*Loaded, error) {
	l := &Loaded{specs: spec.Programs, programs: make(map[string]*ebpf.Program)}
	spec.Programs = nil
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Cache: KernelTypes(),
	})
	if err != nil {
		return nil, err
	}
	defer collection.Close() // closes all that has not been assigned

	l.all = maps.Clone(collection.Maps)
	err = errors.Join(collection.Assign(&l.Maps), collection.Assign(&l.Variables))
	clear(collection.Maps) // whose owner is l
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Program returns a program by its name, one of the constants Prog*. The first call loads it.
//
// The errors come from ebpf.NewCollectionWithOptions.
func (l *Loaded) Program(name string) (*ebpf.Program, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if p := l.programs[name]; p != nil {
		return p, nil
	}
	spec := l.specs[name]
	if spec == nil {
		return nil, fmt.Errorf("program %s: %w", name, os.ErrNotExist)
	}

	for i := range spec.Instructions {
		instruction := &spec.Instructions[i]
		m := l.all[instruction.Reference()]
		if m == nil || !instruction.IsLoadFromMap() {
			continue
		}
		if err := instruction.AssociateMap(m); err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}

	alone := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{name: spec}}
	loaded, err := ebpf.NewCollectionWithOptions(alone, ebpf.CollectionOptions{
		Cache: KernelTypes(),
	})
	if err != nil {
		return nil, err
	}
	p := loaded.Programs[name]
	l.programs[name] = p
	delete(l.specs, name)
	return p, nil
}

// AllPrograms returns all programs by name, and loads those that have not been used yet.
func (l *Loaded) AllPrograms() (map[string]*ebpf.Program, error) {
	l.mu.Lock()
	names := slices.Collect(maps.Keys(l.specs))
	l.mu.Unlock()

	for _, name := range names {
		if _, err := l.Program(name); err != nil {
			return nil, err
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.programs), nil
}

// Close closes all maps and programs. The kernel keeps those that a link or a program uses.
func (l *Loaded) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	var errs []error
	for _, p := range l.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range l.all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
