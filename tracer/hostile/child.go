package hostile

import (
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/reexec"
)

// Descriptors of the child.
const childSocket, childShared = 3, 4

func init() { reexec.Register(Name, reexec.Main(Name, serve)) }

// serve answers requests until the other end of the socket is closed.
func serve() error {
	runtime.LockOSThread()
	usual, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	memory, err := mapShared(childShared)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(childSocket, []byte{0}, nil, nil, 0); err != nil { // it has started
		return err
	}
	message := make([]byte, requestBytes)
	server := server{shared: memory, data: memory[8*maxReads:]}
	for {
		fds, err := receive(childSocket, message)
		if err != nil {
			return nil //nolint:nilerr // the child ends with the socket
		}

		server.fds, server.opened = fds, -1
		ask := decodeRequest(message)
		raised := ask.Operation != readLongFile && unix.SchedSetAttr(0, &undisturbed, 0) == nil
		server.answer(ask)
		if raised {
			_ = unix.SchedSetAttr(0, usual, 0)
		}
		var rights []byte
		if server.opened >= 0 {
			rights = unix.UnixRights(server.opened)
			fds = append(fds, server.opened)
		}
		err = unix.Sendmsg(childSocket, []byte{0}, rights, nil, 0)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
}

// server answers requests, one after the other.
type server struct {
	shared, data []byte
	fds          []int // that came with the request
	opened       int   // the descriptor to answer with; -1: none

	// Buffers of memoryReader.
	addresses, wanted, pages []uint64
	entries                  [8 * maxEntries]byte
	scratch                  [64 << 10]byte
}

func (s *server) answer(ask request) {
	switch {
	case ask.Operation == openFile:
		s.opened = s.open(string(s.data[:ask.Size]))
	case (ask.Operation == readFile || ask.Operation == readLongFile) && len(s.fds) == 1:
		s.readFile(s.data[:ask.Size], int64(s.position(0)))
	case ask.Operation == readMemory && len(s.fds) == 2:
		m := memoryReader{server: s, mem: s.fds[0], pagemap: s.fds[1]}
		s.addresses, s.wanted, s.pages = s.addresses[:0], s.wanted[:0], s.pages[:0]
		m.read(int(ask.Reads), int(ask.Size))
	case ask.Operation == readBlocks && len(s.fds) == 2:
		m := memoryReader{server: s, mem: s.fds[0], pagemap: s.fds[1]}
		s.wanted, s.pages = s.wanted[:0], s.pages[:0]
		m.readBlocks(s.blocks(), int(ask.Reads))
	default:
		s.put(0, 0, unix.EINVAL)
	}
}

func (s *server) position(i int) uint64 { return binary.NativeEndian.Uint64(s.shared[8*i:]) }

// put sets the result of a read.
func (s *server) put(read, n int, err error) {
	result := int64(n)
	if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // system calls return these alone
		result = -int64(errno)
	}
	binary.NativeEndian.PutUint64(s.shared[8*read:], uint64(result))
}

// open opens a file if it is of an allowed type: see Open. It returns -1 if it does not.
func (s *server) open(path string) int {
	folder := unix.AT_FDCWD
	if len(s.fds) > 0 {
		folder = s.fds[0]
	}
	fd, err := openPath(folder, path, s.position(0))
	if err != nil {
		s.put(0, 0, err)
		return -1
	}
	defer unix.Close(fd)

	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		s.put(0, 0, err)
		return -1
	}
	if !slices.Contains([]uint64{unix.S_IFREG, s.position(1)}, uint64(stat.Mode&unix.S_IFMT)) {
		s.put(0, 0, errnoFileType)
		return -1
	}
	opened, err := unix.Open(descriptorPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	s.put(0, 0, err)
	return opened
}

// readFile reads until the buffer is full or the file ends. Files of /proc come in pieces.
func (s *server) readFile(to []byte, offset int64) {
	read := 0
	for read < len(to) {
		n, err := unix.Pread(s.fds[0], to[read:], offset+int64(read))
		if err != nil && err != unix.EINTR { //nolint:errorlint // as in put
			s.put(0, 0, err)
			return
		}
		if n == 0 && err == nil {
			break
		}
		read += max(0, n)
	}

	s.put(0, read, nil)
}

// A memoryReader reads the memory of a process.
type memoryReader struct {
	*server
	mem, pagemap int
	hasNoPagemap bool   // the kernel or a container hides it: all pages are read
	isGone       bool   // the program whose memory it is has ended
	first        uint64 // the first of the pages that findNear has found
}

// maxEntries is how many entries of the page map are read at once, and nearPages by findNear.
const maxEntries, nearPages = 2048, 512

var pageSize = uint64(os.Getpagesize())

// nearBytes is the longest gap between two reads that are made at once: to read it takes less time
// than a system call. A gap is in no other page than the bytes around it.
const nearBytes = 512

// read reads size bytes at each address. Where addresses follow each other closely, and their
// memory is in RAM, it reads them at once.
func (m *memoryReader) read(reads, size int) {
	for i := range reads {
		m.addresses = append(m.addresses, m.position(i))
	}
	addresses := m.addresses
	m.findPages(addresses, uint64(size))

	for i := 0; i < reads; {
		n, bytes := m.near(addresses[i:], size)
		first, to := addresses[i], m.data[i*size:(i+n)*size]
		hasGaps := bytes != n*size
		if hasGaps {
			to = m.scratch[:bytes]
		}
		isRead := n > 1 && m.readAt(to, first)
		for end := i + n; i < end; i++ {
			got, one := 0, m.data[i*size:(i+1)*size]
			switch {
			case isRead && hasGaps:
				got = copy(one, to[addresses[i]-first:])
			case isRead || m.readAt(one, addresses[i]):
				got = size
			}
			m.put(i, got, nil)
		}
	}
	if m.isGone {
		m.put(0, 0, unix.ESRCH)
	}
}

// near returns how many of the first addresses follow each other closely, and the number of bytes
// from the first of them to the end of the last.
func (m *memoryReader) near(addresses []uint64, size int) (n, bytes int) {
	n, bytes = 1, size
	isWhole := true // there is no gap yet
	for n < len(addresses) {
		gap := addresses[n] - addresses[n-1] - uint64(size)
		most := len(m.scratch)
		if isWhole && gap == 0 {
			most = maxAtOnce
		}
		next := bytes + int(gap) + size
		if gap > nearBytes || next > most || !m.isResident(addresses[n], size) {
			break
		}
		n, bytes, isWhole = n+1, next, isWhole && gap == 0
	}
	return n, bytes
}

// findPages finds which pages of the ranges are in RAM and in the page table: then reading them
// waits for nothing. Bit 63 of an entry says so, proc_pid_pagemap(5). Entries that lie close to
// each other are read at once.
func (m *memoryReader) findPages(addresses []uint64, size uint64) {
	wanted := m.wanted
	for _, address := range addresses {
		last := (address + size - 1) / pageSize
		for page := address / pageSize; page <= last; page++ {
			if n := len(wanted); n == 0 || wanted[n-1] != page {
				wanted = append(wanted, page)
			}
		}
	}

	if !slices.IsSorted(wanted) {
		slices.Sort(wanted)
	}
	m.wanted = wanted
	wanted = slices.Compact(wanted)

	entries := m.entries[:]
	if n, _ := preadAtOnce(m.pagemap, entries[:8], 0); n <= 0 {
		m.hasNoPagemap = true
		return
	}
	for len(wanted) > 0 {
		first, n := wanted[0], 1
		for n < len(wanted) && wanted[n] < first+maxEntries && wanted[n]-wanted[n-1] <= 64 {
			n++
		}
		read, _ := preadAtOnce(m.pagemap, entries[:8*(wanted[n-1]-first+1)], int64(first)*8)
		for _, page := range wanted[:n] {
			at := 8 * int(page-first)
			if at+8 <= read && binary.LittleEndian.Uint64(entries[at:])>>63 == 1 {
				m.pages = append(m.pages, page)
			}
		}
		wanted = wanted[n:]
	}
}

// blocks returns the blocks of a request.
func (s *server) blocks() Blocks {
	return Blocks{At: s.position(0), End: s.position(1), Long: s.position(2), First: s.position(3)}
}

// readBlocks reads pages of blocks, as BlockPages does. A result is the address of a page; 0: there
// are no more.
func (m *memoryReader) readBlocks(b Blocks, most int) {
	n, last, near := 0, uint64(0), 0 // near are the pages since the last long block
	read := func(page uint64) bool {
		if page == last {
			return true
		}
		to := m.data[:0]
		if n < most && near < maxNearPages {
			to = m.data[uint64(n)*pageSize:][:pageSize]
			m.findNear(page)
		}
		if len(to) == 0 || !m.readAt(to, page) {
			return false
		}
		m.put(n, int(page), nil)
		n, last, near = n+1, page, near+1
		return true
	}

	for b.At < b.End && read(b.At&^(pageSize-1)) {
		at := b.At%pageSize + 8
		if at+8 > pageSize { // a header is in one page
			break
		}
		word := m.data[uint64(n-1)*pageSize+at:]
		size := binary.LittleEndian.Uint64(word) &^ flagsOfSize
		if size == 0 || size%blockUnit != 0 || size > b.End-b.At {
			break
		}
		end := b.At + size
		if size >= b.Long {
			near, end = 0, b.At+b.First
		}
		for page := last + pageSize; page < end && read(page); {
			page = last + pageSize
		}
		b.At += size
	}

	if n < most {
		m.put(n, 0, nil)
	}
	if m.isGone {
		m.put(0, 0, unix.ESRCH)
	}
}

// findNear is findPages for a page and the ones behind it, unless they are known.
func (m *memoryReader) findNear(page uint64) {
	if page >= m.first && page < m.first+nearPages*pageSize {
		return
	}
	m.first, m.pages, m.wanted = page, m.pages[:0], m.wanted[:0]
	m.findPages([]uint64{page}, nearPages*pageSize)
}

// readAt reads all bytes of a range, or returns false. The kernel reads nothing of an address space
// that is no more, and there is no error.
func (m *memoryReader) readAt(to []byte, address uint64) bool {
	if !m.isResident(address, len(to)) {
		return false
	}
	read, errno := preadAtOnce(m.mem, to, int64(address))
	m.isGone = m.isGone || read == 0 && errno == 0
	return errno == 0 && read == len(to)
}

// preadAtOnce is pread(2) of memory in RAM. It waits for a lock at most, so that Go's scheduler
// need not hear of it: that would give this thread's place to another one, which costs more than a
// short read.
func preadAtOnce(fd int, to []byte, offset int64) (int, unix.Errno) {
	read, _, errno := unix.RawSyscall6(
		unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&to[0])), uintptr(len(to)),
		uintptr(offset), 0, 0)
	return int(read), errno
}

// isResident reports whether all pages of a range are in RAM.
func (m *memoryReader) isResident(address uint64, size int) bool {
	first, last := address/pageSize, (address+uint64(size)-1)/pageSize
	i, found := slices.BinarySearch(m.pages, first)
	n := int(last - first)
	return m.hasNoPagemap || found && last >= first && i+n < len(m.pages) && m.pages[i+n] == last
}
