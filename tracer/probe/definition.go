package probe

import (
	"fmt"
	"os"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// definitions are the allocator's functions by the files that define them, in search order.
type definitions struct {
	process *process.Process
	static  bool
	files   []*definingFile
	places  map[string]int // index of the file by name of the function
	ended   bool           // the C library has been looked at
}

// A definingFile is one that defines some of the functions.
type definingFile struct {
	mapping process.Mapping
	opened  *os.File
	image   *symbol.File
	defined []definition
}

type definition struct {
	function Function
	names    []string // all of the function's
	address  uint64   // virtual, as in the file
}

func (d *definitions) has(name string) bool { _, ok := d.places[name]; return ok }

func (d *definitions) close() {
	for _, f := range d.files {
		f.opened.Close()
	}
}

// add looks for functions that no file before this one defines. Behind the C library a file that cannot be read has none.
func (d *definitions) add(mapping process.Mapping) error {
	opened, image, err := openFile(d.process, mapping)
	if err != nil && d.ended {
		return nil
	}
	if err != nil {
		return err
	}
	file := &definingFile{mapping: mapping, opened: opened, image: image}
	if !d.ended {
		err = d.addMalloc(file)
	}
	if err == nil {
		err = d.addFamilies(file)
	}
	if err != nil || len(file.defined) == 0 {
		opened.Close()
	} else {
		d.files = append(d.files, file)
	}
	if err != nil {
		return fmt.Errorf("read symbols of %s: %w", mapping.Path, err)
	}
	return nil
}

// startOfC is a function that no file but the C library defines.
const startOfC = "__libc_start_main"

// interposedNames are those of functions of which the first definition serves all files.
var interposedNames = func() map[string]bool {
	names := namesOf(slices.Concat(Functions, rare, operators))
	names[startOfC] = true
	return names
}()

func namesOf(functions []Function) map[string]bool {
	names := make(map[string]bool)
	for _, f := range functions {
		names[f.Name] = true
	}
	return names
}

func (d *definitions) addMalloc(file *definingFile) error {
	symbols, err := d.functions(file.image, interposedNames)
	if err != nil {
		return err
	}
	d.take(file, Functions, symbols)
	if d.places["free"] == len(d.files) && d.has("free") {
		d.take(file, rare, symbols)
	}
	d.take(file, operators, symbols)
	_, d.ended = symbols[startOfC]
	return nil
}

// addFamilies adds what one file has of allocators with names of their own.
func (d *definitions) addFamilies(file *definingFile) error {
	for _, family := range families {
		if d.has(family.release) {
			continue
		}
		isProgram := file.mapping.Path == d.process.Executable
		if _, ok := file.image.Export(family.release); !ok && !isProgram {
			continue
		}
		wanted := namesOf(family.functions)
		symbols, err := file.image.Functions(symbol.Dynamic, wanted)
		if err == nil && isProgram {
			err = addUnexported(file.image, symbols, wanted)
		}
		if err != nil {
			return err
		}
		if _, ok := symbols[family.release]; ok {
			d.take(file, family.functions, symbols)
		}
	}
	return nil
}

// functions gives the addresses of the wanted functions that a file exports. A static program exports none: there all count.
func (d *definitions) functions(file *symbol.File, wanted map[string]bool) (map[string]uint64, error) {
	if d.static {
		if defined, err := file.Functions(symbol.Static, wanted); err != nil || len(defined) > 0 {
			return defined, err
		}
	}
	return file.Functions(symbol.Dynamic, wanted)
}

// addUnexported adds functions of a library that was linked into the program, which exports only what others refer to.
// Local ones are not taken: they may be parts, or have been compiled into their callers.
func addUnexported(file *symbol.File, symbols map[string]uint64, wanted map[string]bool) error {
	return file.EachFunction(symbol.Static, func(name []byte, address uint64, isLocal bool) {
		if _, known := symbols[string(name)]; !known && !isLocal && wanted[string(name)] {
			symbols[string(name)] = address
		}
	})
}

// take takes those functions that are new, one for each address: several names may be one function.
func (d *definitions) take(file *definingFile, functions []Function, symbols map[string]uint64) {
	for _, function := range functions {
		address, ok := symbols[function.Name]
		if !ok || d.has(function.Name) {
			continue
		}
		d.places[function.Name] = len(d.files)
		known := slices.IndexFunc(file.defined, func(other definition) bool { return other.address == address })
		if known < 0 {
			known = len(file.defined)
			file.defined = append(file.defined, definition{function: function, address: address})
		}
		file.defined[known].names = append(file.defined[known].names, function.Name)
	}
}

// refuseOperators leaves out the C++ operators of files that call malloc for them.
func (d *definitions) refuseOperators() error {
	isOperator := namesOf(operators)
	for i, file := range d.files {
		if i == d.places["malloc"] {
			continue
		}
		imports, err := file.image.Imports(func(name string) bool { return name == "malloc" })
		if err != nil {
			return fmt.Errorf("read imports of %s: %w", file.mapping.Path, err)
		}
		if len(imports) == 0 {
			continue
		}
		file.defined = slices.DeleteFunc(file.defined, func(f definition) bool {
			isTaken := isOperator[f.function.Name]
			if isTaken {
				delete(d.places, f.function.Name)
			}
			return isTaken
		})
	}
	return nil
}
