package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// An Interpreter is the CPython of a process.
type Interpreter struct {
	// Version without the release: "3.11".
	Version string
	// Module is a mapping of the file that holds the interpreter: the program or a library.
	Module process.Mapping
	// Kernel is what the kernel side has to know of it.
	Kernel bpf.KernelPython
	// Code is what ReadCode has to know of it.
	Code CodeLayout
}

// ErrUnsupported is wrapped by the errors for an interpreter whose frames cannot be followed; they say which it is.
var ErrUnsupported = errors.New("unsupported interpreter")

// Find gives the interpreter of a process; nil and no error if it has none. Where it has several, the program's own comes
// first, then that of a library named after Python.
func Find(p *process.Process, maps []process.Mapping) (*Interpreter, error) {
	var refused error
	for _, m := range candidates(p, maps) {
		found, err := examine(p, m)
		if found != nil {
			return found, nil
		}
		if refused == nil && err != nil {
			refused = fmt.Errorf("find Python in %s: %w", m.Path, err)
		}
	}
	return nil, refused
}

// candidates gives an executable mapping of each file, the likely ones first.
func candidates(p *process.Process, maps []process.Mapping) []process.Mapping {
	seen := make(map[process.FileID]bool)
	var found []process.Mapping
	for _, m := range maps {
		if m.Execute && m.IsFile() && !seen[m.File()] {
			seen[m.File()] = true
			found = append(found, m)
		}
	}
	rank := func(m process.Mapping) int {
		switch {
		case m.Path == p.Executable:
			return 0
		case strings.HasPrefix(path.Base(m.Path), "libpython"):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(found, func(a, b process.Mapping) int { return rank(a) - rank(b) })
	return found
}

// examine looks for an interpreter in one file. A file that cannot be read holds none.
func examine(p *process.Process, m process.Mapping) (*Interpreter, error) {
	f, err := p.OpenMapped(m)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return nil, nil
	}
	runtime, ok := file.Export("_PyRuntime")
	if !ok {
		return nil, refuseOther(file)
	}
	bias, ok := file.Bias(m.Start, m.Offset)
	if !ok {
		return nil, nil
	}
	l, err := findLayout(p, file, bias, bias+runtime.Address)
	if err != nil {
		return nil, err
	}
	kernel := l.at(bias + runtime.Address)
	if err := l.check(p, kernel); err != nil {
		return nil, err
	}
	if kernel.Loop, err = findLoop(file, bias); err != nil {
		return nil, err
	}
	return &Interpreter{Version: fmt.Sprintf("3.%d", l.code.Minor), Module: m, Kernel: kernel, Code: l.code}, nil
}

// refuseOther is an error if the file is an interpreter of Python from before 3.7, or another than CPython.
func refuseOther(file *symbol.File) error {
	exports := func(name string) bool { _, ok := file.Export(name); return ok }
	switch {
	case exports("pypy_execute_source"):
		return unsupportedVersion("PyPy")
	case !exports("PyEval_EvalFrameEx"):
		return nil
	case exports("PyString_FromString"):
		return unsupportedVersion("CPython 2")
	}
	return unsupportedVersion("CPython 3.6 or older")
}

func unsupportedVersion(name string) error {
	return fmt.Errorf("%w: %s (CPython 3.8 to 3.14 are supported)", ErrUnsupported, name)
}

// findLayout finds out what version the interpreter is and where it keeps things. bias is what to add to the file's
// addresses, runtime the address of _PyRuntime in the process.
func findLayout(m Memory, file *symbol.File, bias, runtime uint64) (*layout, error) {
	// Both exist in builds that check or trace references alone, whose objects are larger.
	for _, name := range []string{"_Py_NegativeRefcount", "PyModule_Create2TraceRefs"} {
		if _, debug := file.Export(name); debug {
			return nil, fmt.Errorf("%w: a debug build of CPython (run a release build)", ErrUnsupported)
		}
	}
	if l, err := readDebugLayout(m, runtime); l != nil || err != nil {
		return l, err
	}
	minor, err := olderMinor(m, file, bias)
	if err != nil {
		return nil, err
	}
	if l, known := staticLayouts[minor]; known {
		return &l, nil
	}
	if _, known := debugVersions[minor]; known {
		return nil, fmt.Errorf("%w: CPython 3.%d without offsets for debuggers (a modified build?)", ErrUnsupported, minor)
	}
	return nil, unsupportedVersion(fmt.Sprintf("CPython 3.%d", minor))
}

// olderMinor tells versions before 3.13 apart: from 3.11 on they export their number, before that functions that came
// with each.
func olderMinor(m Memory, file *symbol.File, bias uint64) (int, error) {
	if version, ok := file.Export("Py_Version"); ok {
		var word [8]byte
		if err := m.ReadMemory(bias+version.Address, word[:]); err != nil {
			return 0, err
		}
		return releasedMinor(binary.LittleEndian.Uint64(word[:]))
	}
	for _, since := range []struct {
		name  string
		minor int
	}{{"PyIter_Send", 10}, {"PyFrame_GetBack", 9}, {"PyCode_NewWithPosOnlyArgs", 8}} {
		if _, ok := file.Export(since.name); ok {
			return since.minor, nil
		}
	}
	return 7, nil
}

// releasedMinor decodes PY_VERSION_HEX, of Python 3. Structures change up to the release candidates.
// https://docs.python.org/3/c-api/apiabiversion.html
func releasedMinor(version uint64) (int, error) {
	const releaseCandidate = 0xc
	minor := int(version >> 16 & 0xff)
	switch {
	case version>>24 != 3:
		return 0, unsupportedVersion(fmt.Sprintf("CPython of version %#x", version))
	case version>>4&0xf < releaseCandidate:
		return 0, fmt.Errorf("%w: a preview of CPython 3.%d (run a release)", ErrUnsupported, minor)
	}
	return minor, nil
}
