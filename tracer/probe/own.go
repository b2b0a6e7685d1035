package probe

import (
	"bytes"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// addOthers adds the functions of files that are not in the search order. Files that cannot be read
// are ignored.
func (d *definitions) addOthers(files []process.Mapping) {
	d.afterLibc = true
	for _, mapping := range files {
		if d.read > maxTableBytes {
			return
		}
		_ = d.addFile(mapping)
	}
}

// addOwnMalloc adds malloc and its relatives of a file for which another file's come first in the
// search order. The file's own code may call them all the same: it was linked with -Bsymbolic or
// does not export them, or was loaded with RTLD_DEEPBIND or into a namespace of its own. Where none
// of its code does, the probes are never hit. A malloc that calls the other one counts once, as
// the kernel side sees calls within calls.
func (d *definitions) addOwnMalloc(file *definingFile) error {
	if d.has("malloc") && d.fileOf["malloc"] == len(d.files) || isLinker(file.image) {
		return nil
	}

	for _, table := range []symbol.Table{symbol.Dynsym, symbol.Symtab} {
		if _, ok := file.image.Export("malloc"); !ok && table == symbol.Dynsym {
			continue
		}
		symbols, err := file.image.Functions(table, interposedNames)
		if err != nil {
			return err
		}
		if symbols["malloc"] != 0 && symbols["free"] != 0 {
			_, file.isLibc = symbols[libcStart]
			file.isOwn = true
			isNew := func(f Function) bool { return !file.defines(f.Name) }
			all := slices.Concat(Functions, optional, operators)
			d.add(file, filter(all, isNew), symbols)
			return nil
		}
	}

	if len(file.defined) > 0 || file.hidden != "" {
		return nil
	}
	return file.findHidden()
}

// isLinker reports whether a file is glibc's dynamic linker. It has a malloc for its own start.
func isLinker(image *symbol.File) bool {
	_, isDebugged := image.Export("_r_debug")
	_, isLibc := image.Export(libcStart)
	return isDebugged && !isLibc
}

func (f *definingFile) defines(name string) bool {
	return slices.ContainsFunc(f.defined, func(d definition) bool {
		return slices.Contains(d.names, name)
	})
}

// findHidden sets hidden, by the texts of known allocators. Only files are searched that map memory
// themselves, and call no malloc of another file.
func (f *definingFile) findHidden() error {
	lacks, err := f.image.Lacks("malloc", "mmap", "mmap64")
	if err != nil {
		return err
	}
	if callsMalloc, mapsMemory := lacks[0], lacks[1] || lacks[2]; callsMalloc || !mapsMemory {
		return nil
	}

	constants := f.image.Constants()
	isConstant := func(text string) bool { return bytes.Contains(constants, []byte(text)) }
	for _, a := range allocators.All {
		if slices.ContainsFunc(a.Texts, isConstant) {
			f.hidden = a.Name
			return nil
		}
	}
	return nil
}
