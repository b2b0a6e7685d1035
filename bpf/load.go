package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"
)

// Loaded is the BPF object in the kernel: its maps and variables from the start, and each program
// from its first use. A program that walks stacks takes the verifier 0.07 s, and a trace needs only
// the programs of its sources.
type Loaded struct {
	Maps
	Variables

	all        map[string]*ebpf.Map // the maps of Maps, and the sections of data
	programs   map[string]*program
	preloading sync.WaitGroup
}

// A program is in the kernel from its first use on. Several can be loaded at a time: each takes its
// time in the verifier, which the kernel runs for many at once.
type program struct {
	spec   *ebpf.ProgramSpec
	once   sync.Once
	loaded *ebpf.Program
	err    error
}

// Load loads the maps and variables of a spec of LoadKernel into the kernel. The spec belongs to
// Loaded from now on, and a program that the caller has deleted from it is not there.
//
// The errors come from ebpf.NewCollectionWithOptions.
func Load(spec *ebpf.CollectionSpec) (*Loaded, error) {
	l := &Loaded{programs: make(map[string]*program)}
	for name, of := range spec.Programs {
		l.programs[name] = &program{spec: of}
	}
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
	p := l.programs[name]
	if p == nil {
		return nil, fmt.Errorf("program %s: %w", name, os.ErrNotExist)
	}
	p.once.Do(func() { p.loaded, p.err = l.load(name, p.spec) })
	return p.loaded, p.err
}

func (l *Loaded) load(name string, spec *ebpf.ProgramSpec) (*ebpf.Program, error) {
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
	return loaded.Programs[name], nil
}

// Preload begins to load programs that will be used soon, and returns at once. Program has the errors.
func (l *Loaded) Preload(names ...string) {
	for _, name := range names {
		l.preloading.Go(func() { _, _ = l.Program(name) })
	}
}

// AllPrograms returns all programs by name, and loads those that have not been used yet.
func (l *Loaded) AllPrograms() (map[string]*ebpf.Program, error) {
	all := make(map[string]*ebpf.Program)
	for name := range l.programs {
		p, err := l.Program(name)
		if err != nil {
			return nil, err
		}
		all[name] = p
	}
	return all, nil
}

// Close closes all maps and programs. The kernel keeps those that a link or a program uses.
func (l *Loaded) Close() error {
	l.preloading.Wait()

	var errs []error
	for _, p := range l.programs {
		p.once.Do(func() { p.err = os.ErrClosed })
		errs = append(errs, p.loaded.Close()) // of nil, too
	}
	for _, m := range l.all {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
