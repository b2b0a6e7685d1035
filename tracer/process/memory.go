package process

import (
	"errors"
	"fmt"
	"os"

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

// Bounds of Peek: bytes at each address, and addresses in one system call (UIO_MAXIOV).
const (
	maxPeek      = 4096
	maxAddresses = 1024
)

// Peek reads size bytes, 1 to 4096, at each address, in few system calls; nil for those of which not all could be read.
// They need not be of one moment. As with ReadMemory, a page that is not in memory is brought in by reading it: ask Runs
// first. The error wraps os.ErrNotExist if the process is gone.
func (p *Process) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > maxPeek {
		return nil, fmt.Errorf("read %d bytes of memory at each address: not 1 to %d", size, maxPeek)
	}
	found := make([][]byte, len(addresses))
	for i := 0; i < len(addresses); i += maxAddresses {
		last := min(i+maxAddresses, len(addresses))
		if err := p.peek(addresses[i:last], size, found[i:last]); err != nil {
			return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, err)
		}
	}
	if !p.Alive() { // else this may be of another process with its PID
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, os.ErrNotExist)
	}
	return found, nil
}

// peek reads at up to maxAddresses addresses. A call reads one address after the other up to the first that it cannot read.
func (p *Process) peek(addresses []uint64, size int, found [][]byte) error {
	buffer := make([]byte, len(addresses)*size)
	remote := make([]unix.RemoteIovec, len(addresses))
	for i, a := range addresses {
		remote[i] = unix.RemoteIovec{Base: uintptr(a), Len: size}
	}
	for len(remote) > 0 {
		local := []unix.Iovec{{Base: &buffer[0], Len: uint64(len(buffer))}}
		n, err := unix.ProcessVMReadv(p.PID, local, remote, 0)
		switch {
		case errors.Is(err, unix.ESRCH):
			return os.ErrNotExist
		case err != nil && !errors.Is(err, unix.EFAULT):
			return err
		}
		read := max(n, 0) / size
		for i := range read {
			found[i] = buffer[i*size : (i+1)*size : (i+1)*size]
		}
		passed := min(read+1, len(remote)) // the next cannot be read
		buffer, remote, found = buffer[passed*size:], remote[passed:], found[passed:]
	}
	return nil
}
