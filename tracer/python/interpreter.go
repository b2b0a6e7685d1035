// Package python finds the CPython interpreter of a process and reads the names of its frames:
// function, file and line.
//
// All memory that it reads belongs to the traced process, so it is hostile input: sizes are
// bounded, and a value that cannot be true is an error. Names follow the CPython sources.
package python

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// Memory reads the memory of the traced process.
type Memory interface {
	// ReadMemory fills buffer from address on. It is an error if not all of buffer could be read.
	ReadMemory(address uint64, buffer []byte) error
}

// An Interpreter is the CPython of a process.
type Interpreter struct {
	// Version is major and minor version, such as "3.11", with a "t" if it is free-threaded.
	Version string
	// Module is an executable mapping of the interpreter's file: the program or a library.
	Module process.Mapping
	// Kernel has the data that the BPF programs need to walk the frames.
	Kernel bpf.Python
	// CPython has the structures of its minor version.
	CPython *cpython.Version
	// CodeLayout has the offsets that ReadCode needs to name the frames, without a published one.
	CodeLayout cpython.CodeLayout
	// State is where the state of the interpreter is.
	State State
}

// Release is Version with its third number, such as "3.11.2", where that is known: from 3.11 on.
func (i *Interpreter) Release() string {
	if i.State.Hex == 0 {
		return i.Version
	}
	minor, isFreeThreaded := strings.CutSuffix(i.Version, "t")
	release := fmt.Sprintf("%s.%d", minor, i.State.Hex>>8&0xff)
	if isFreeThreaded {
		release += "t"
	}
	return release
}

// State is where the state of an interpreter is.
type State struct {
	// Runtime is the address of _PyRuntime.
	Runtime uint64
	// Hex is PY_VERSION_HEX; 0 before 3.11, where the file does not have it.
	Hex uint32
	// Objects are the addresses of the exported objects that exportedObjects names.
	Objects map[string]uint64
	// NativeThreadID is the offset of PyThreadState.native_thread_id, in bytes; cpython.Absent before
	// 3.11.
	NativeThreadID uint64
	// GC and Modules are the offsets of gc and imports.modules in PyInterpreterState, in bytes; 0
	// before 3.13, which does not publish them.
	GC, Modules uint16
	// FreeThreaded is set for a build without the GIL (Py_GIL_DISABLED), whose objects have another
	// head and lie in the interpreter's own mimalloc.
	FreeThreaded bool
}

// exportedObjects are types and other objects that every version exports.
var exportedObjects = []string{
	"PyType_Type", "PyModule_Type", "PyUnicode_Type", "PyBytes_Type", "PyLong_Type", "PyBool_Type",
	"PyTuple_Type", "PyDict_Type", "PyFunction_Type", "PyCode_Type", "PyFrame_Type", "PyGen_Type",
	"PyCoro_Type", "PyAsyncGen_Type", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct",
}

// ErrUnsupported is wrapped by the errors for interpreters whose frames cannot be walked. Each such
// error names the interpreter.
var ErrUnsupported = errors.New("unsupported interpreter")

// Find returns the interpreter of a process, nil without an error if the process has none. If it
// has several, the program's own comes first, then the one of a library named libpython.
func Find(p *process.Process, maps []process.Mapping) (*Interpreter, error) {
	var refused error
	for _, m := range candidates(p, maps) {
		found, err := findInFile(p, m)
		if found != nil {
			return found, nil
		}

		if refused == nil && err != nil {
			refused = fmt.Errorf("find Python in %s: %w", m.Path, err)
		}
	}

	return nil, refused
}

// candidates returns one executable mapping of each file, the likeliest interpreters first.
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

// findInFile returns the interpreter in the file of m, nil if it holds none or cannot be read.
func findInFile(p *process.Process, m process.Mapping) (*Interpreter, error) {
	f, err := p.OpenMapped(m)
	if err != nil {
		return nil, nil
	}
	defer f.Close()

	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return nil, nil
	}

	runtime, ok := file.Export("_PyRuntime") // since 3.7
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

	kernel := l.kernelOffsets(bias + runtime.Address)
	if err := l.check(p, kernel); err != nil {
		return nil, err
	}
	if kernel.Loop, err = findEvalLoop(file, bias); err != nil {
		return nil, err
	}

	return &Interpreter{
		Version:    l.versionName(),
		Module:     m,
		Kernel:     kernel,
		CPython:    l.version,
		CodeLayout: l.code,
		State:      l.state(file, bias, bias+runtime.Address),
	}, nil
}

func (l *layout) versionName() string {
	version := fmt.Sprintf("3.%d", l.version.Minor)
	if l.freeThreaded {
		version += "t"
	}
	return version
}

// state returns where the state of an interpreter with this layout is.
func (l *layout) state(file *symbol.File, bias, runtime uint64) State {
	s := State{
		Runtime: runtime, Hex: l.hex, Objects: make(map[string]uint64),
		NativeThreadID: l.frames.NativeThreadID, GC: l.gc, Modules: l.modules,
		FreeThreaded: l.freeThreaded,
	}
	for _, name := range exportedObjects {
		if object, ok := file.Export(name); ok {
			s.Objects[name] = bias + object.Address
		}
	}
	return s
}

// refuseOther returns an error if a file without _PyRuntime is PyPy or a CPython before 3.7.
func refuseOther(file *symbol.File) error {
	switch {
	case exports(file, "pypy_execute_source"):
		return fmt.Errorf("%w: PyPy (only frames of CPython can be read)",
			ErrUnsupported)
	case !exports(file, "PyEval_EvalFrameEx"):
		return nil
	case exports(file, "PyString_FromString"):
		return unsupportedVersion("CPython 2")
	}

	return unsupportedVersion("CPython 3.6 or older")
}

// isDebugBuild reports whether an interpreter was built with Py_DEBUG: no other exports this.
func isDebugBuild(file *symbol.File) bool { return exports(file, "_Py_NegativeRefcount") }

func exports(file *symbol.File, name string) bool {
	_, ok := file.Export(name)
	return ok
}

func refuseDebug(build string) error {
	return fmt.Errorf("%w: %s (run a release build)", ErrUnsupported, build)
}

func unsupportedVersion(name string) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, cpython.UnknownError(name))
}

// findLayout returns the layout of the interpreter in file. bias is what to add to the addresses of
// the file, runtime the address of _PyRuntime in the process.
func findLayout(m Memory, file *symbol.File, bias, runtime uint64) (*layout, error) {
	// Its objects begin with two more words.
	if exports(file, "PyModule_Create2TraceRefs") {
		return nil, refuseDebug("a build of CPython with Py_TRACE_REFS")
	}

	if l, err := readDebugOffsets(m, runtime); l != nil || err != nil {
		return l, err
	}

	// Its structures differ from the structures of a release build.
	if isDebugBuild(file) {
		return nil, refuseDebug("a debug build of CPython before 3.13")
	}

	v, hex, err := versionBefore313(m, file, bias)
	if err != nil {
		return nil, err
	}
	if v.DebugOffsets != nil {
		return nil, fmt.Errorf("%w: CPython 3.%d without offsets for debuggers (a modified build?)",
			ErrUnsupported, v.Minor)
	}

	l := layoutOf(v)
	l.hex = hex
	return l, nil
}

// versionBefore313 returns the version of a CPython without _Py_DebugOffsets, and its
// PY_VERSION_HEX. From 3.11 on the file exports Py_Version; before that the functions that came with
// each version tell them apart, and the PY_VERSION_HEX is 0.
func versionBefore313(m Memory, file *symbol.File, bias uint64) (
	v *cpython.Version, hex uint32, err error,
) {
	version, ok := file.Export("Py_Version")
	if !ok {
		v, err = cpython.FindByExports(func(name string) bool { return exports(file, name) })
		return v, 0, wrapUnknown(err)
	}

	word, err := readWord(m, bias+version.Address)
	if err != nil {
		return nil, 0, err
	}
	v, err = versionOfHex(word)
	return v, uint32(word), err
}

// versionOfHex returns the version of a PY_VERSION_HEX. It refuses alphas and betas, because
// structures change up to the release candidates.
// https://docs.python.org/3/c-api/apiabiversion.html
func versionOfHex(hex uint64) (*cpython.Version, error) {
	const releaseCandidate = 0xc // PY_RELEASE_LEVEL_GAMMA
	minor := int(hex >> 16 & 0xff)
	switch {
	case hex>>24 != 3:
		return nil, unsupportedVersion(fmt.Sprintf("CPython of version %#x", hex))
	case hex>>4&0xf < releaseCandidate:
		return nil, fmt.Errorf("%w: a preview of CPython 3.%d (run a release)", ErrUnsupported, minor)
	}

	v, err := cpython.Find(minor)
	return v, wrapUnknown(err)
}

// wrapUnknown makes the error of a version that is not known an ErrUnsupported.
func wrapUnknown(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}

// evalFunction is the evaluation loop, exported by every version.
const evalFunction = "_PyEval_EvalFrameDefault"

const (
	maxEvalBytes  = 4 << 20                // bytes of the loop that are read; the largest has 90 KiB
	maxEvalRanges = len(bpf.Python{}.Loop) // that the BPF programs compare with
)

// findEvalLoop returns where _PyEval_EvalFrameDefault lies, in addresses of the process. Compilers
// split off code that they think runs rarely. .symtab names these parts (".cold"); in a stripped
// file they are where jumps out of the loop lead.
func findEvalLoop(file *symbol.File,
	bias uint64,
) (loop [maxEvalRanges]bpf.CodeRange, err error) {
	function, ok := file.Export(evalFunction)
	if !ok {
		return loop, fmt.Errorf("%w: %s is not exported (a modified build?)", ErrUnsupported,
			evalFunction)
	}

	hot := symbol.CodeRange{
		Start: function.Address,
		End:   function.Address + min(function.Size, maxEvalBytes),
	}

	if function.Size == 0 {
		hot, _ = file.FDERange(function.Address)
	}

	ranges := append([]symbol.CodeRange{hot}, file.ColdRanges(evalFunction)...)
	if len(ranges) == 1 {
		ranges = followJumps(file, hot)
	}

	if len(ranges) > maxEvalRanges {
		return loop, fmt.Errorf("%w: its evaluation loop is in more than %d pieces", ErrUnsupported,
			maxEvalRanges)
	}

	for i, r := range ranges {
		loop[i] = bpf.CodeRange{Start: r.Start + bias, End: r.End + bias}
	}

	return loop, nil
}

// followJumps returns hot and the cold ranges of the same function that jumps lead to, directly or
// through each other. It stops after one more than can be used.
func followJumps(file *symbol.File, hot symbol.CodeRange) []symbol.CodeRange {
	ranges := []symbol.CodeRange{hot}
	for i := 0; i < len(ranges) && len(ranges) <= maxEvalRanges; i++ {
		from := ranges[i]
		code, _, err := file.Code(from.Start, int(min(from.End-from.Start, maxEvalBytes)))
		if err != nil {
			continue
		}

		for target := range jumpTargets(file.Machine(), code, from.Start) {
			if r, ok := file.FDERange(target); ok && r.Cold && !overlaps(ranges, r) {
				ranges = append(ranges, r)
			}
		}
	}

	return ranges
}

func overlaps(ranges []symbol.CodeRange, r symbol.CodeRange) bool {
	for _, other := range ranges {
		if r.Start < other.End && other.Start < r.End {
			return true
		}
	}

	return false
}

// jumpTargets returns the addresses outside of the code to which it jumps directly. An invented
// target does no harm: it would have to hit a cold range by chance.
func jumpTargets(machine elf.Machine, code []byte, start uint64) map[uint64]bool {
	jumps := jumpsOfX86
	if machine == elf.EM_AARCH64 {
		jumps = jumpsOfAArch64
	}

	targets := make(map[uint64]bool)
	for to := range jumps(code) {
		if to < 0 || to >= int64(len(code)) {
			targets[start+uint64(to)] = true
		}
	}
	return targets
}

// jumpsOfX86 returns where x86-64 code jumps, in bytes from its start. Where it cannot be decoded,
// decoding goes on at the next byte.
func jumpsOfX86(code []byte) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for at := 0; at < len(code); {
			instruction, err := x86asm.Decode(code[at:], 64)
			if err != nil || instruction.Len == 0 {
				at++
				continue
			}

			at += instruction.Len
			distance, direct := instruction.Args[0].(x86asm.Rel)
			if instruction.Op == x86asm.CALL || !direct {
				continue
			}
			if !yield(int64(at) + int64(distance)) {
				return
			}
		}
	}
}

// jumpsOfAArch64 returns where arm64 code jumps, in bytes from its start.
func jumpsOfAArch64(code []byte) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		const length = 4 // of an instruction
		for at := 0; at+length <= len(code); at += length {
			instruction, err := arm64asm.Decode(code[at:])
			if err != nil {
				continue
			}

			switch instruction.Op {
			case arm64asm.B, arm64asm.CBZ, arm64asm.CBNZ, arm64asm.TBZ, arm64asm.TBNZ:
			default:
				continue
			}
			for _, argument := range instruction.Args {
				distance, ok := argument.(arm64asm.PCRel)
				if ok && !yield(int64(at)+int64(distance)) {
					return
				}
			}
		}
	}
}

// readWord reads a word of 8 bytes.
func readWord(m Memory, address uint64) (uint64, error) {
	var word [8]byte
	if err := m.ReadMemory(address, word[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(word[:]), nil
}
