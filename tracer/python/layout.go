package python

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"github.com/allocscope/allocscope/bpf"
)

// A layout is where an interpreter keeps what is followed in it.
type layout struct {
	kernel bpf.KernelPython // offsets only
	code   CodeLayout

	interpreters      uint16 // in the runtime: the pointer to the newest interpreter
	threadInterpreter uint16 // in a thread state: the pointer to its interpreter
	nativeThread      uint16 // in a thread state: the kernel's thread ID; 0: before 3.11, which has none
}

// noIndirection is for layouts whose thread states point to the innermost frame themselves.
const noIndirection = ^uint16(0)

// at gives what the kernel side needs for an interpreter whose runtime is at an address.
func (l layout) at(address uint64) bpf.KernelPython {
	kernel := l.kernel
	kernel.Interpreters = address + uint64(l.interpreters)
	kernel.FrameBytes = max(kernel.FrameCode, kernel.FrameBack, kernel.FrameInstruction, kernel.FrameEntry)/8*8 + 8
	kernel.CodeName, kernel.CodeFile, kernel.CodeLines = l.code.Name, l.code.FileName, l.code.LineTable
	if l.code.QualifiedName != 0 {
		kernel.CodeName = l.code.QualifiedName
	}
	kernel.BytesSize, kernel.TextLength = l.code.BytesSize, l.code.TextLength
	if runtime.GOARCH != "amd64" { // pthread_self() is not the thread pointer there
		kernel.ThreadKey = l.nativeThread
	}
	return kernel
}

// check looks whether the newest interpreter's newest thread points back to the interpreter, as it does in every version.
// Both may change at any time, so that one success counts. An interpreter that is not started yet is in order.
func (l layout) check(m Memory, kernel bpf.KernelPython) error {
	const attempts = 16
	for range attempts {
		interpreter, err := readPointer(m, kernel.Interpreters)
		if err != nil {
			return err
		}
		if interpreter == 0 {
			return nil
		}
		thread, err := readPointer(m, interpreter+uint64(kernel.InterpreterThreads))
		if err != nil {
			continue
		}
		if thread == 0 {
			return nil
		}
		back, err := readPointer(m, thread+uint64(l.threadInterpreter))
		if err == nil && back == interpreter {
			return nil
		}
	}
	return fmt.Errorf("%w: its threads are not where CPython 3.%d keeps them (a modified build?)", ErrUnsupported, l.code.Minor)
}

func readPointer(m Memory, address uint64) (uint64, error) {
	var word [8]byte
	if err := m.ReadMemory(address, word[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(word[:]), nil
}
