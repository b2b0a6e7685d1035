package interpreter

import "errors"

// A Module is an entry of sys.modules.
type Module struct {
	Name         string // its key
	Object, Dict uint64 // addresses of the module and of its dict
}

const (
	maxModules = 1 << 16

	// mainModule is the module of the program itself. Its dict may be resized while it is read, and
	// then has no __file__ at times: mainReadings are tried.
	mainModule   = "__main__"
	mainReadings = 4
)

// stateBytes is the size of the part of a PyInterpreterState or of _PyRuntime that is searched for
// fields without a published offset. Its releases of a minor version differ. In all before 3.13 it
// lies in the first KiB.
const stateBytes = 4 << 10

var errNoModules = errors.New("sys.modules is not where it has to be")

// Modules returns the entries of sys.modules of all interpreters that are modules, or of a type
// derived from them. It is an error if no interpreter has a sys.modules.
func (r *Runtime) Modules() ([]Module, error) {
	reader := r.newReader()
	states := reader.interpreters()
	if r.modules == 0 && !r.findModules(reader, states) {
		return nil, errNoModules
	}

	found := false
	var modules []Module
	for _, state := range states {
		dict, ok := reader.pointer(state + r.modules)
		if !ok {
			continue
		}
		var items [][2]uint64 // names and modules
		var addresses []uint64
		found = reader.entries(dict, maxModules, func(key, value uint64) bool {
			items, addresses = append(items, [2]uint64{key, value}), append(addresses, key, value)
			return true
		}) || found
		reader.prepare(addresses)
		for _, item := range items {
			if m, ok := reader.module(item[0], item[1]); ok && len(modules) < maxModules {
				modules = append(modules, m)
			}
		}
	}

	if !found || len(modules) == 0 {
		return nil, errNoModules
	}

	return modules, nil
}

// findModules finds where PyInterpreterState has the pointer to sys.modules: a dict in which "sys"
// is a module in which "modules" is that dict.
func (r *Runtime) findModules(reader *reader, states []uint64) bool {
	for _, state := range states {
		for offset := uint64(0); offset < stateBytes; offset += 8 {
			dict, ok := reader.pointer(state + offset)
			if !ok || !reader.is(dict, "PyDict_Type") {
				continue
			}
			sys, _ := reader.lookup(dict, "sys", maxGlobals)
			if !reader.is(sys, "PyModule_Type") {
				continue
			}
			names, _ := reader.pointer(sys + r.version.ModuleDict)
			if back, _ := reader.lookup(names, "modules", maxGlobals); back == dict {
				r.modules = offset
				return true
			}
		}
	}

	return false
}

func (r *reader) module(key, value uint64) (m Module, ok bool) {
	if m.Name, ok = r.text(key, maxText); !ok || !r.isSubtype(value, "PyModule_Type") {
		return Module{}, false
	}
	m.Object = value
	m.Dict, ok = r.pointer(value + r.version.ModuleDict)
	return m, ok
}

// FileOf returns the __file__ of a module; empty: it has none. PyTorch has a thousand modules, and
// few of them are asked for.
func (r *Runtime) FileOf(m Module) (path string) {
	readings := 1
	if m.Name == mainModule {
		readings = mainReadings
	}
	for range readings {
		reader := r.newReader()
		if file, ok := reader.lookup(m.Dict, "__file__", maxGlobals); ok {
			if path, _ = reader.text(file, maxPath); path != "" {
				break
			}
		}
	}
	return path
}
