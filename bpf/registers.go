package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxRegisterBytes bounds the registers that are read of a process: some ten thousand threads.
const maxRegisterBytes = 4 << 20

// ReadRegisters returns the user registers of all threads of a process, by its tgid in the initial
// PID namespace. They are as the kernel saved them when a thread last entered it: a thread that
// runs may have other ones by now. It loads one program alone, and takes it away again.
//
// The errors come from ebpf.CollectionSpec.LoadAndAssign, link.AttachIter and reading.
func ReadRegisters(tgid uint32) (threads []ThreadRegisters, err error) {
	spec, err := LoadKernel()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables["registers_tgid"].Set(tgid); err != nil {
		return nil, err
	}

	var loaded struct {
		Program *ebpf.Program `ebpf:"read_registers"`
	}
	if err := spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{Cache: KernelTypes()}); err != nil {
		return nil, fmt.Errorf("load the reader of registers: %w", err)
	}
	defer loaded.Program.Close()

	iterator, err := link.AttachIter(link.IterOptions{Program: loaded.Program})
	if err != nil {
		return nil, fmt.Errorf("attach the reader of registers: %w", err)
	}
	defer iterator.Close()
	stream, err := iterator.Open()
	if err != nil {
		return nil, fmt.Errorf("open the reader of registers: %w", err)
	}
	defer stream.Close()

	limited := io.LimitReader(stream, maxRegisterBytes)
	for {
		var one ThreadRegisters
		switch err := binary.Read(limited, binary.NativeEndian, &one); {
		case errors.Is(err, io.EOF):
			return threads, nil
		case err != nil:
			return nil, fmt.Errorf("read registers: %w", err)
		}
		threads = append(threads, one)
	}
}
