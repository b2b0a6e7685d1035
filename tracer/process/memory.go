package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

var errShortRead = errors.New("the rest is not mapped")

// ReadMemory fills buffer with the memory of the process at an address (process_vm_readv(2)). It is an error if not all of
// it could be read; what buffer holds then is undefined.
func (p *Process) ReadMemory(address uint64, buffer []byte) error {
	if len(buffer) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
	remote := []unix.RemoteIovec{{Base: uintptr(address), Len: len(buffer)}}
	n, err := unix.ProcessVMReadv(p.PID, local, remote, 0)
	if err == nil && n < len(buffer) {
		err = errShortRead
	}
	if err != nil {
		return fmt.Errorf("read %d bytes of memory of pid %d at %#x: %w", len(buffer), p.PID, address, err)
	}
	return nil
}
