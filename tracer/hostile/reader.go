package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/reexec"
)

// Name is argument 0 of the child process.
const Name = "allocscope-reader"

// ErrStalled means that a read has not returned in time, and was given up.
var ErrStalled = errors.New("it does not answer (a file system in user space or on another machine?)")

const (
	// readTimeout is how long the child has for an answer. Most take microseconds. A busy disk
	// takes less than a second, and a fork(2) of a process of hundreds of GiB locks it for some.
	readTimeout = 30 * time.Second
	// startTimeout is how long the child has to start.
	startTimeout = 2 * time.Minute
	// maxLost bounds the children that hang. Each costs some 10 MiB until its read returns.
	maxLost = 4
)

// The memory that both processes share has the positions of the reads, and then the bytes read.
const (
	maxReads    = 1 << 15 // in a request
	maxBytes    = 8 << 20 // in an answer: on a busy machine, each waits for a CPU twice
	maxAtOnce   = 2 << 20 // that are read at once, which holds the lock of an address space
	sharedBytes = 8*maxReads + maxBytes
)

// An operation is a request to the child.
type operation uint32

const (
	openFile     operation = iota // at a path; the answer has the descriptor
	readFile                      // at a position
	readLongFile                  // the same, where that may keep a CPU busy for long
	readMemory                    // of a process, at addresses whose pages are in RAM
	readBlocks                    // of a process: pages with headers of blocks
)

// A request goes through the socket, with the descriptors of the files. The shared memory has the
// rest: positions, and a path. It is answered there, too: position i by the number of bytes that
// were read, or by an error number below 0.
type request struct {
	Operation operation
	Reads     uint32
	Size      uint32 // bytes of each read
}

const requestBytes = 12

func (r request) encode() []byte {
	message := binary.NativeEndian.AppendUint32(make([]byte, 0, requestBytes), uint32(r.Operation))
	message = binary.NativeEndian.AppendUint32(message, r.Reads)
	return binary.NativeEndian.AppendUint32(message, r.Size)
}

func decodeRequest(message []byte) request {
	word := binary.NativeEndian.Uint32
	return request{operation(word(message)), word(message[4:]), word(message[8:])}
}

// A reader asks a child process to read. It starts the child when it first needs one.
type reader struct {
	timeout time.Duration

	mu     sync.Mutex // held during a request
	socket int        // 0: there is no child
	pid    int
	shared []byte
	used   time.Duration   // CPU time of children that have ended
	ended  chan struct{}   // closed when the child has ended
	lost   []chan struct{} // of the children that hang
}

var child = reader{timeout: readTimeout}

// CPUTime returns the CPU time of the children.
func CPUTime() time.Duration {
	child.mu.Lock()
	defer child.mu.Unlock()
	return child.used + child.cpuTime()
}

// Memory reads memory of a process: mem and pagemap are its files in /proc. It reads size bytes at
// each address, and only where all of them are in RAM: nothing is brought in for it, be it from
// swap, from a file or from the kernel's zero page. A result is nil where that is not so. The error
// is os.ErrNotExist if the program has ended whose memory the files are of.
func Memory(mem, pagemap *os.File, addresses []uint64, size int) ([][]byte, error) {
	return MemoryInto(nil, mem, pagemap, addresses, size)
}

// MemoryInto is Memory, but takes a buffer for the contents. It makes one where that is too small.
func MemoryInto(
	buffer []byte, mem, pagemap *os.File, addresses []uint64, size int,
) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	if len(buffer) < len(addresses)*size {
		buffer = make([]byte, len(addresses)*size)
	}
	most := min(maxReads, maxBytes/size)
	for from := 0; from < len(addresses); from += most {
		to := min(len(addresses), from+most)
		results, err := child.readMemory(mem, pagemap, addresses[from:to], size, buffer[from*size:])
		if err != nil {
			return nil, err
		}
		for i, n := range results {
			if n == int64(size) {
				at := (from + i) * size
				contents[from+i] = buffer[at : at+size : at+size]
			}
		}
	}

	return contents, nil
}

// Pages reads whole pages as Memory does, one after the other into a buffer of at most MaxBytes. It
// returns which pages were in RAM; the bytes of the others are zero. Errors are as of Memory.
func Pages(mem, pagemap *os.File, addresses []uint64, buffer []byte) (present []bool, err error) {
	results, err := child.readMemory(mem, pagemap, addresses, int(pageSize), buffer)
	if err != nil {
		return nil, err
	}
	present = make([]bool, len(results))
	for i, n := range results {
		present[i] = n == int64(pageSize)
		if !present[i] {
			clear(buffer[uint64(i)*pageSize:][:pageSize])
		}
	}

	return present, nil
}

// Blocks are blocks of memory that follow each other, as in a heap of malloc. The second word of
// each has its size, a multiple of blockUnit, and flags in the lowest bits.
type Blocks struct {
	At, End uint64 // of the first block; of the heap
	// Of a block of Long bytes and more, the First bytes are read, and of others all.
	Long, First uint64
}

const (
	blockUnit, flagsOfSize = 16, 7
	// maxNearPages bounds the pages that are read behind a long block, to the next one: in more, no
	// block has to be passed over.
	maxNearPages = 16
)

// BlockPages reads the pages of blocks one after the other into a buffer of at most MaxBytes, and
// returns their addresses. It ends where a page is not in RAM, where no block follows, and where
// none of many pages has a long block. Errors are as of Memory.
func BlockPages(mem, pagemap *os.File, b Blocks, buffer []byte) (pages []uint64, err error) {
	return child.readBlocks(mem, pagemap, b, buffer)
}

func (r *reader) readBlocks(
	mem, pagemap *os.File, b Blocks, to []byte,
) (pages []uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.start(); err != nil {
		return nil, err
	}
	for i, word := range []uint64{b.At, b.End, b.Long, b.First} {
		r.setPosition(i, word)
	}
	most := uint64(len(to)) / pageSize
	ask := request{Operation: readBlocks, Reads: uint32(most), Size: uint32(pageSize)}
	if _, err := r.ask(ask, mem, pagemap); err != nil {
		return nil, err
	}
	if r.result(0) == -int64(unix.ESRCH) {
		return nil, os.ErrNotExist
	}
	for i := 0; i < int(most) && r.result(i) > 0; i++ {
		pages = append(pages, uint64(r.result(i)))
	}
	copy(to, r.data()[:uint64(len(pages))*pageSize])
	return pages, nil
}

// MaxBytes is the most that Memory can read at one address.
const MaxBytes = maxBytes

func (r *reader) readMemory(
	mem, pagemap *os.File, addresses []uint64, size int, to []byte,
) (results []int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.start(); err != nil {
		return nil, err
	}
	for i, address := range addresses {
		r.setPosition(i, address)
	}
	ask := request{Operation: readMemory, Reads: uint32(len(addresses)), Size: uint32(size)}
	if _, err := r.ask(ask, mem, pagemap); err != nil {
		return nil, err
	}
	if len(addresses) > 0 && r.result(0) == -int64(unix.ESRCH) {
		return nil, os.ErrNotExist
	}
	copy(to, r.data()[:len(addresses)*size])
	results = make([]int64, len(addresses))
	for i := range results {
		results[i] = r.result(i)
	}
	return results, nil
}

func (r *reader) readFile(
	operation operation, f *os.File, to []byte, offset int64,
) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.start(); err != nil {
		return 0, err
	}
	r.setPosition(0, uint64(offset))
	ask := request{Operation: operation, Reads: 1, Size: uint32(len(to))}
	if _, err := r.ask(ask, f); err != nil {
		return 0, err
	}
	n, err := r.onlyResult()
	copy(to, r.data()[:n])
	return n, err
}

// open opens a file: see Open.
func (r *reader) open(folder *os.File, path string, resolve uint64, allowed uint32) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if err := r.start(); err != nil {
		return -1, err
	}
	r.setPosition(0, resolve)
	r.setPosition(1, uint64(allowed))
	size := copy(r.data(), path)
	var folders []*os.File
	if folder != nil {
		folders = append(folders, folder)
	}
	opened, err := r.ask(request{Operation: openFile, Reads: 2, Size: uint32(size)}, folders...)
	if err != nil {
		return -1, err
	}
	if _, err := r.onlyResult(); err != nil {
		return -1, err
	}
	return opened, nil
}

func (r *reader) data() []byte { return r.shared[8*maxReads:] }

func (r *reader) setPosition(i int, position uint64) {
	binary.NativeEndian.PutUint64(r.shared[8*i:], position)
}

func (r *reader) result(i int) int64 { return int64(binary.NativeEndian.Uint64(r.shared[8*i:])) }

// onlyResult returns the result of a request that has one.
func (r *reader) onlyResult() (int, error) {
	n := r.result(0)
	if n < 0 {
		return 0, unix.Errno(-n)
	}
	return int(n), nil
}

// ask has the child do a request, and returns the descriptor of its answer; -1: there is none. The
// results are in shared. A child that does not answer in time is given up.
func (r *reader) ask(ask request, files ...*os.File) (fd int, err error) {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}

	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(r.socket, ask.encode(), rights, nil, 0); err != nil {
		r.giveUp()
		return -1, fmt.Errorf("ask the reading process: %w", err)
	}

	if !awaitAnswer(r.socket, r.timeout) {
		r.lost = append(r.lost, r.ended)
		r.giveUp()
		return -1, ErrStalled
	}
	opened, err := receive(r.socket, make([]byte, 1))
	if err != nil {
		r.giveUp()
		return -1, fmt.Errorf("hear the reading process: %w", err)
	}
	if len(opened) == 0 {
		return -1, nil
	}
	return opened[0], nil
}

// awaitAnswer returns false if there is no answer in time.
func awaitAnswer(socket int, timeout time.Duration) bool {
	until := time.Now().Add(timeout)
	for {
		rest := time.Until(until)
		polled := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, int(max(0, rest.Milliseconds())))
		if n > 0 {
			return true
		}
		if rest <= 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}

// receive receives a message with its descriptors. The error is io.EOF if the other end is closed.
func receive(socket int, message []byte) (fds []int, err error) {
	const most = 2 // descriptors
	control := make([]byte, unix.CmsgSpace(most*4))
	n, size, _, _, err := unix.Recvmsg(socket, message, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	parts, err := unix.ParseSocketControlMessage(control[:size])
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	return unix.ParseUnixRights(&parts[0])
}

// start starts the child, unless there is one.
func (r *reader) start() error {
	if r.socket != 0 {
		return nil
	}
	r.lost = slices.DeleteFunc(r.lost, hasEnded)
	if len(r.lost) >= maxLost {
		return fmt.Errorf("%d reading processes hang: %w", len(r.lost), ErrStalled)
	}
	if err := r.startChild(); err != nil {
		return fmt.Errorf("start the reading process: %w", err)
	}
	return nil
}

// hasEnded reports whether a hung child has ended after all, since its read has returned.
func hasEnded(child chan struct{}) bool {
	select {
	case <-child:
		return true
	default:
		return false
	}
}

func (r *reader) startChild() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := pair[0], os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()

	memory, err := newShared()
	if err != nil {
		unix.Close(ours)
		return err
	}
	defer memory.Close()
	shared, err := mapShared(int(memory.Fd()))
	if err != nil {
		unix.Close(ours)
		return err
	}

	command := exec.Cmd{
		Path: reexec.Executable, Args: []string{Name},
		Env:        []string{"GOMAXPROCS=1", "GOGC=20"},
		Stderr:     os.Stderr,
		ExtraFiles: []*os.File{theirs, memory},
		// Ctrl-C does not reach it, nor the SIGHUP of a process group whose shell has ended.
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	if err := command.Start(); err != nil {
		unix.Close(ours)
		return errors.Join(err, unix.Munmap(shared))
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // for ever, if it hangs for ever
		close(ended)
	}()
	r.socket, r.pid, r.shared, r.ended = ours, command.Process.Pid, shared, ended
	if !awaitAnswer(ours, startTimeout) {
		r.giveUp()
		return fmt.Errorf("not within %s", startTimeout)
	}
	if _, err := receive(ours, make([]byte, 1)); err != nil {
		r.giveUp()
		return err
	}
	return nil
}

func newShared() (*os.File, error) {
	fd, err := unix.MemfdCreate("allocscope-reader", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "shared memory")
	if err := file.Truncate(sharedBytes); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func mapShared(fd int) ([]byte, error) {
	return unix.Mmap(fd, 0, sharedBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// giveUp ends the child. If it hangs, it ends when its read returns.
func (r *reader) giveUp() {
	r.used += r.cpuTime()
	_ = unix.Kill(r.pid, unix.SIGKILL)
	_ = unix.Close(r.socket)
	_ = unix.Munmap(r.shared)
	r.socket, r.pid, r.shared = 0, 0, nil
}

// cpuTime returns the CPU time of the child.
func (r *reader) cpuTime() time.Duration {
	if r.socket == 0 {
		return 0
	}
	used, _ := CPUTimeOf(r.pid) // 0: it has ended
	return used
}

// CPUTimeOf returns the user and system time of a process since it began, summed over all its
// threads, exited ones included. It is an error if the process is gone.
func CPUTimeOf(pid int) (time.Duration, error) {
	// The clock ID of another process's CPU clock: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED),
	// include/linux/posix-timers_types.h.
	const cpuClockSched = 2
	clock := int32(^pid<<3 | cpuClockSched)

	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0, err
	}
	return time.Duration(used.Nano()), nil
}
