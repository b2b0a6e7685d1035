package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/allocscope/allocscope/tracer/hostile"
)

// PageSize is the kernel's page size in bytes. The arm64 kernel may have pages of 16 or 64 KiB.
var PageSize = uint64(os.Getpagesize())

var errNotReadable = errors.New("it is not in RAM, nor in the file that it is mapped from")

// ReadMemory fills buffer with the memory of the process at an address, whatever its protection. It
// is an error if not all of it could be read; buffer is undefined then. A page that is not in RAM
// is read from the file that it was mapped from, or is zero if it never was written. It is not read
// from swap. Where the page map cannot be read, all mapped pages are read.
func (p *Process) ReadMemory(address uint64, buffer []byte) error {
	if len(buffer) == 0 {
		return nil
	}
	err := (addressSpace{p}).read(address, buffer)
	if err != nil {
		return fmt.Errorf("read %d bytes of memory of pid %d at %#x: %w",
			len(buffer), p.PID, address, err)
	}
	return nil
}

// addressSpace is the memory of the program that a process executes now.
type addressSpace struct{ process *Process }

func (s addressSpace) read(address uint64, buffer []byte) error {
	if address+uint64(len(buffer)) < address {
		return errNotReadable
	}
	for len(buffer) > hostile.MaxBytes {
		if err := s.read(address, buffer[:hostile.MaxBytes]); err != nil {
			return err
		}
		address, buffer = address+hostile.MaxBytes, buffer[hostile.MaxBytes:]
	}
	contents, err := s.peek(nil, []uint64{address}, len(buffer))
	if err != nil {
		return err
	}
	if contents[0] != nil {
		copy(buffer, contents[0])
		return nil
	}

	maps, err := s.process.Maps()
	if err != nil {
		return err
	}
	for len(buffer) > 0 {
		n := min(uint64(len(buffer)), PageSize-address%PageSize)
		if err := s.readPage(maps, address, buffer[:n]); err != nil {
			return err
		}
		address, buffer = address+n, buffer[n:]
	}
	return nil
}

// readPage reads memory of one page. A page of a private mapping that has no entry in the page table
// has the contents of its file, or zeros.
func (s addressSpace) readPage(maps []Mapping, address uint64, buffer []byte) error {
	contents, err := s.peek(nil, []uint64{address}, len(buffer))
	if err != nil {
		return err
	}
	if contents[0] != nil {
		copy(buffer, contents[0])
		return nil
	}

	m, ok := FindMapping(maps, address)
	if !ok || m.Shared || !s.isUntouched(address) {
		return errNotReadable
	}
	clear(buffer)
	if !m.IsFile() {
		return nil
	}
	f, err := s.process.OpenMapped(m)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(buffer, int64(address-m.Start+m.Offset)); !errors.Is(err, io.EOF) {
		return err
	}
	return nil // behind its end the page is zero
}

// isUntouched reports whether a page is neither in RAM nor in swap.
func (s addressSpace) isUntouched(address uint64) bool {
	pagemap, err := s.process.open("pagemap")
	if err != nil {
		return false
	}
	defer pagemap.Close()
	var entry [entrySize]byte
	_, err = hostile.OfProcess(pagemap).ReadAt(entry[:], int64(address/PageSize*entrySize))
	return err == nil && entry[entrySize-1]&0xc0 == 0
}

const maxPeekBytes = 4096 // at each address

// Peek reads size bytes, 1 to 4096, at each address, whatever its protection. A result is nil where
// not all bytes are in RAM. The reads are not atomic: they may be of different moments. The error
// wraps os.ErrNotExist if the process is gone.
func (p *Process) Peek(addresses []uint64, size int) ([][]byte, error) {
	return p.PeekInto(nil, addresses, size)
}

// PeekInto is Peek, but takes a buffer for the contents. It makes one where that is too small.
func (p *Process) PeekInto(buffer []byte, addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > maxPeekBytes {
		return nil, fmt.Errorf("read %d bytes of memory at each address: not 1 to %d",
			size, maxPeekBytes)
	}
	contents, err := addressSpace{p}.peek(buffer, addresses, size)
	if err == nil && !p.Alive() {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read memory of pid %d: %w", p.PID, err)
	}
	return contents, nil
}

// peek reads as Peek. process_vm_readv(2) would do
// without a file. But since Linux 5.19 it first gives the process its own copy of every page that it
// shares with a parent or child since a fork.
func (s addressSpace) peek(buffer []byte, addresses []uint64, size int) ([][]byte, error) {
	if err := s.process.Stalled(); err != nil {
		return nil, err
	}

	kept := &s.process.memory
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if !kept.isOn {
		defer kept.close()
	}
	if kept.memory != nil {
		contents, err := kept.memory.peek(buffer, addresses, size)
		if !errors.Is(err, os.ErrNotExist) {
			return contents, err
		}
		_ = kept.close() // the process executes another program now, or has exited
	}

	memory, err := s.process.OpenMemory()
	if err != nil {
		return nil, err
	}
	kept.memory = memory
	return memory.peek(buffer, addresses, size)
}

// keptMemory is the memory of the program that a process executed when it was last read.
type keptMemory struct {
	mu     sync.Mutex // held while it is read
	memory *Memory    // nil: it was not read yet, or is not kept
	isOn   bool
}

// KeepMemory keeps the files of a process's memory open between reads, until the process is closed:
// for one that is read all the time.
func KeepMemory(p *Process) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.memory.isOn = true
}

// close closes the files. The caller holds k.mu.
func (k *keptMemory) close() (err error) {
	if k.memory != nil {
		err = k.memory.Close()
		k.memory = nil
	}
	return err
}

// A Memory reads the memory of the program that a process executed when it was opened, many times.
// It is not safe for concurrent use.
type Memory struct {
	process      *Process
	mem, pagemap *os.File
}

// OpenMemory opens the memory of the process. The error wraps os.ErrNotExist if the process is gone.
func (p *Process) OpenMemory() (*Memory, error) {
	mem, err := p.open("mem")
	if err != nil {
		return nil, fmt.Errorf("open memory of pid %d: %w", p.PID, err)
	}
	pagemap, err := p.open("pagemap")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open pagemap of pid %d: %w", p.PID, err), mem.Close())
	}
	return &Memory{process: p, mem: mem, pagemap: pagemap}, nil
}

// Close closes the memory.
func (m *Memory) Close() error { return errors.Join(m.mem.Close(), m.pagemap.Close()) }

// Peek is Process.Peek.
func (m *Memory) Peek(addresses []uint64, size int) ([][]byte, error) {
	if size < 1 || size > maxPeekBytes {
		return nil, fmt.Errorf("read %d bytes of memory at each address: not 1 to %d", size, maxPeekBytes)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.peek(nil, addresses, size)
}

func (m *Memory) peek(buffer []byte, addresses []uint64, size int) ([][]byte, error) {
	contents, err := hostile.MemoryInto(buffer, m.mem, m.pagemap, addresses, size)
	return contents, m.process.noteStall(err)
}

// PeekPages reads whole pages that follow each other into a buffer of at most 8 MiB, and returns
// which of them are in RAM. The bytes of the others are zero. Errors are as in Peek.
func (m *Memory) PeekPages(address uint64, buffer []byte) (present []bool, err error) {
	addresses := make([]uint64, uint64(len(buffer))/PageSize)
	for i := range addresses {
		addresses[i] = address + uint64(i)*PageSize
	}
	return m.PeekPagesAt(addresses, buffer)
}

// PeekPagesAt is PeekPages for pages anywhere, in the order of their addresses.
func (m *Memory) PeekPagesAt(addresses []uint64, buffer []byte) (present []bool, err error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	present, err = hostile.Pages(m.mem, m.pagemap, addresses, buffer)
	return present, m.process.noteStall(err)
}

// PeekBlocks is hostile.BlockPages.
func (m *Memory) PeekBlocks(b hostile.Blocks, buffer []byte) (pages []uint64, err error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	pages, err = hostile.BlockPages(m.mem, m.pagemap, b, buffer)
	return pages, m.process.noteStall(err)
}

func (m *Memory) check() error {
	if err := m.process.Stalled(); err != nil {
		return err
	}
	if !m.process.Alive() {
		return fmt.Errorf("read memory of pid %d: %w", m.process.PID, os.ErrNotExist)
	}
	return nil
}
