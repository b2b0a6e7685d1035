package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PageSize is the kernel's page size in bytes. The arm64 kernel may have pages of 16 or 64 KiB.
var PageSize = uint64(os.Getpagesize())

var errShortRead = errors.New("the rest is not mapped")

// ReadMemory fills buffer with the memory of the process at an address (proc_pid_mem(5)), whatever
// its protection, and even if it is a device's. It is an error if not all of it could be read;
// buffer is undefined then.
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
		return fmt.Errorf("read %d bytes of memory of pid %d at %#x: %w",
			len(buffer), p.PID, address, err)
	}
	return nil
}

const maxPeekBytes = 4096 // at each address

// Peek reads size bytes, 1 to 4096, at each address, as ReadMemory does. A result is nil where not
// all bytes could be read. The reads are not atomic: they may be of different moments. Reading a
// swapped-out page brings it in: call Pagemap.Runs first. The error wraps os.ErrNotExist if the
// process is gone.
func (p *Process) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > maxPeekBytes {
		return nil, fmt.Errorf("read %d bytes of memory at each address: not 1 to %d",
			size, maxPeekBytes)
	}
	memory, err := p.openMemory()
	if err != nil {
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, err)
	}
	defer memory.Close()

	buffer := make([]byte, len(addresses)*size)
	contents := make([][]byte, len(addresses))
	for i := 0; i < len(addresses); {
		n := adjacent(addresses[i:], size)
		isRead := n > 1 && readAt(memory, buffer[i*size:(i+n)*size], addresses[i]) == nil
		for end := i + n; i < end; i++ {
			to := buffer[i*size : (i+1)*size : (i+1)*size]
			if isRead || readAt(memory, to, addresses[i]) == nil {
				contents[i] = to
			}
		}
	}

	if !p.Alive() {
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, os.ErrNotExist)
	}
	return contents, nil
}

// adjacent returns how many addresses follow each other with so many bytes between them.
func adjacent(addresses []uint64, size int) int {
	n := 1
	for n < len(addresses) && addresses[n] == addresses[n-1]+uint64(size) {
		n++
	}
	return n
}

// openMemory opens the memory of the program that the process executes now. process_vm_readv(2)
// would read many addresses in one call. But since Linux 5.19 it first gives the process its own
// copy of every page that it shares with a parent or child since a fork.
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
