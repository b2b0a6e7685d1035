package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var errShortRead = errors.New("the rest is not mapped")

// ReadMemory fills buffer with the memory of the process at an address (proc_pid_mem(5)), whatever its protection, and even if
// it is a device's. It is an error if not all of it could be read; what buffer holds then is undefined.
func (p *Process) ReadMemory(address uint64, buffer []byte) error {
	if len(buffer) == 0 {
		return nil
	}
	memory, err := p.openMemory()
	if err == nil {
		defer memory.Close()
		err = readAt(memory, buffer, address)
	}
	if err != nil {
		return fmt.Errorf("read %d bytes of memory of pid %d at %#x: %w", len(buffer), p.PID, address, err)
	}
	return nil
}

const maxPeek = 4096 // bytes at each address

// Peek reads size bytes, 1 to 4096, at each address, as ReadMemory does; nil for those of which not all could be read. They need
// not be of one moment. A page that is not in memory is brought in by reading it: ask Runs first. The error wraps os.ErrNotExist
// if the process is gone.
func (p *Process) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > maxPeek {
		return nil, fmt.Errorf("read %d bytes of memory at each address: not 1 to %d", size, maxPeek)
	}
	memory, err := p.openMemory()
	if err != nil {
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, err)
	}
	defer memory.Close()
	buffer := make([]byte, len(addresses)*size)
	found := make([][]byte, len(addresses))
	for i, a := range addresses {
		to := buffer[i*size : (i+1)*size : (i+1)*size]
		if readAt(memory, to, a) == nil {
			found[i] = to
		}
	}
	if !p.Alive() {
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, os.ErrNotExist)
	}
	return found, nil
}

// openMemory opens the memory of what the process executes now. process_vm_readv(2) would read at many addresses in one call, but
// since Linux 5.19 first gives the process a copy of every page that it shares with a parent or child since a fork.
func (p *Process) openMemory() (*os.File, error) {
	memory, err := os.Open(p.path("mem"))
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, os.ErrNotExist
	case err != nil:
		return nil, errors.Unwrap(err)
	}
	return memory, nil
}

func readAt(memory *os.File, buffer []byte, address uint64) error {
	n, err := unix.Pread(int(memory.Fd()), buffer, int64(address))
	if err == nil && n < len(buffer) {
		err = errShortRead
	}
	return err
}
