package uprobe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// Name is argument 0 of the process that holds the probes.
const Name = "allocscope-probes"

// A request to the process that holds the probes. To attach, a file and a program come with it.
type request struct {
	ID     uint64
	Attach *Order
	Close  uint64 // ID of the request whose links are closed
}

// An answer has the links of a request, or why there are none.
type answer struct {
	ID     uint64
	Error  string
	Number unix.Errno // in the error's chain; 0: none
}

// A refusal is an error of the process that holds the probes.
type refusal struct {
	text   string
	number unix.Errno
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error {
	if r.number == 0 {
		return nil
	}
	return r.number
}

const (
	maxMessage = 128 << 10
	// maxRights is how many descriptors a message can have: SCM_MAX_FD, unix(7).
	maxRights = 253
)

// A holder is a process that holds probes, as the process sees it that wants them. Both have all
// links open, so that the probes outlive the end of the holder, and the end of the other process
// interrupts nothing.
type holder struct {
	socket *net.UnixConn
	pid    int

	mu      sync.Mutex
	last    uint64 // ID of a request
	waiting map[uint64]chan<- reply
	isGone  bool
}

type reply struct {
	answer
	links []int // descriptors
}

// current is the holder that this process has started; h is nil if there is none, or none any more.
var current struct {
	mu   sync.Mutex
	h    *holder
	used time.Duration // CPU time of those that are gone
}

// CPUTime returns the CPU time of the process that holds the probes.
func CPUTime() time.Duration {
	current.mu.Lock()
	defer current.mu.Unlock()

	used := current.used
	if current.h != nil {
		now, _ := hostile.CPUTimeOf(current.h.pid) // 0: it has ended
		used += now
	}
	return used
}

// A probing is the links of a request in a holder.
type probing struct {
	id     uint64
	holder *holder

	mu   sync.Mutex
	left int // links that are open
}

// A held link is open in the holder, too.
type held struct {
	link.Link
	of *probing
}

// Close detaches. The holder closes the links of an order together: with the last of them.
func (l held) Close() error {
	err := l.Link.Close()
	l.of.mu.Lock()
	l.of.left--
	isLast := l.of.left == 0
	l.of.mu.Unlock()
	if isLast {
		if _, gone := l.of.holder.ask(request{Close: l.of.id}); !errors.Is(gone, errGone) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// Attach attaches a program to all points of a file, or to none.
func Attach(o Order, file hostile.HeldPath, program *ebpf.Program) (links []link.Link, err error) {
	for len(o.Points) > 0 {
		now, n := o, len(o.Points)
		if o.Mode == Single {
			n = min(n, maxRights)
		}
		now.Points, o.Points = o.Points[:n], o.Points[n:]
		more, err := now.send(file, program)
		if err != nil {
			closeAll(links)
			return nil, err
		}
		links = append(links, more...)
	}
	return links, nil
}

func (o Order) send(file hostile.HeldPath, program *ebpf.Program) (links []link.Link, err error) {
	h, err := running()
	if err != nil {
		return nil, fmt.Errorf("start the process that holds the probes: %w", err)
	}
	fd, err := unix.Open(file.String(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)

	r, err := h.ask(request{Attach: &o}, fd, program.FD())
	if err != nil {
		return nil, err
	}

	of := &probing{id: r.ID, holder: h, left: len(r.links)}
	for _, fd := range r.links {
		l, wrong := link.NewFromFD(fd)
		err = errors.Join(err, wrong)
		links = append(links, held{Link: l, of: of})
	}
	if err != nil {
		_, gone := h.ask(request{Close: of.id})
		return nil, errors.Join(err, gone)
	}
	return links, nil
}

// closeAll closes links whose program will not be attached after all.
func closeAll(links []link.Link) {
	for _, l := range links {
		_ = l.Close()
	}
}

// running returns the holder, which it starts when it is first needed.
func running() (*holder, error) {
	current.mu.Lock()
	defer current.mu.Unlock()

	if current.h == nil {
		h, err := start()
		if err != nil {
			return nil, err
		}
		current.h = h
	}
	return current.h, nil
}

func start() (*holder, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer ours.Close()
	defer theirs.Close()
	socket, err := connection(ours)
	if err != nil {
		return nil, err
	}

	command := exec.Cmd{
		Path: reexec.Executable, Args: []string{Name}, Env: []string{"GOMAXPROCS=1"},
		Stderr: os.Stderr, ExtraFiles: []*os.File{theirs},
		// It gets no signal of a terminal, nor of a process group whose shell has ended.
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, socket.Close())
	}

	h := &holder{socket: socket, pid: command.Process.Pid, waiting: make(map[uint64]chan<- reply)}
	go func() {
		h.listen()
		_ = command.Wait()
	}()
	return h, nil
}

func connection(file *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// listen passes the answers on until the holder has ended.
func (h *holder) listen() {
	for {
		var a answer
		fds, err := receive(h.socket, &a)
		if err != nil {
			break
		}
		h.mu.Lock()
		to := h.waiting[a.ID]
		delete(h.waiting, a.ID)
		h.mu.Unlock()
		to <- reply{a, fds}
	}

	current.mu.Lock()
	if current.h == h {
		now, _ := hostile.CPUTimeOf(h.pid)
		current.h, current.used = nil, current.used+now
	}
	current.mu.Unlock()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.isGone = true
	_ = h.socket.Close()
	for _, to := range h.waiting {
		close(to)
	}
}

// errGone means that the holder has ended too early.
var errGone = errors.New("the process that holds the probes has ended")

// ask waits for the answer to a request.
func (h *holder) ask(r request, fds ...int) (reply, error) {
	got := make(chan reply, 1)

	h.mu.Lock()
	h.last++
	r.ID = h.last
	if h.isGone {
		h.mu.Unlock()
		return reply{}, errGone
	}
	h.waiting[r.ID] = got
	h.mu.Unlock()

	if err := send(h.socket, r, fds...); err != nil {
		h.mu.Lock()
		delete(h.waiting, r.ID)
		h.mu.Unlock()
		if errors.Is(err, unix.EPIPE) || errors.Is(err, net.ErrClosed) {
			err = errGone
		}
		return reply{}, err
	}

	a, isAnswered := <-got
	switch {
	case !isAnswered:
		return a, errGone
	case a.Error != "":
		return a, refusal{a.Error, a.Number}
	}
	return a, nil
}

// send sends a message with descriptors.
func send(to *net.UnixConn, message any, fds ...int) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return fmt.Errorf("a message of %d bytes is too long", len(text))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = to.WriteMsgUnix(text, rights, nil)
	return err
}

// receive receives a message with its descriptors. An error means that the other end is closed.
func receive(from *net.UnixConn, message any) (fds []int, err error) {
	text, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxRights))
	n, size, _, _, err := from.ReadMsgUnix(text, control)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, net.ErrClosed
	}

	if parts, err := unix.ParseSocketControlMessage(control[:size]); err == nil && len(parts) > 0 {
		if fds, err = unix.ParseUnixRights(&parts[0]); err != nil {
			return nil, err
		}
	}
	return fds, json.Unmarshal(text[:n], message)
}
