package uprobe

import (
	"errors"
	"os"
	"os/signal"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/reexec"
)

func init() { reexec.Register(Name, reexec.Main(Name, serve)) }

// A server holds the links of the requests that it has answered.
type server struct {
	calls sync.WaitGroup
	mu    sync.Mutex
	links map[uint64][]link.Link // by ID of the request
}

// serve attaches and detaches until the other end of the socket is closed, and then detaches all.
// A service manager that ends all processes of allocscope asks first: this one takes its time.
func serve() error {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	file := os.NewFile(3, "socket")
	socket, err := connection(file)
	if err != nil {
		return err
	}
	_ = file.Close()

	s := &server{links: make(map[uint64][]link.Link)}
	for {
		var r request
		fds, err := receive(socket, &r)
		if err != nil {
			break
		}
		s.calls.Go(func() {
			// The other process may be gone, and then its links are closed below.
			links, err := s.answer(r, fds)
			_ = send(socket, answerOf(r.ID, err), links...)
		})
	}

	s.calls.Wait()
	for _, links := range s.links {
		closeAll(links)
	}
	return nil
}

// answer attaches or detaches, and returns the descriptors of the new links.
func (s *server) answer(r request, fds []int) (links []int, err error) {
	if r.Attach == nil {
		s.mu.Lock()
		old := s.links[r.Close]
		delete(s.links, r.Close)
		s.mu.Unlock()

		var errs []error
		for _, l := range old {
			errs = append(errs, l.Close())
		}
		return nil, errors.Join(errs...)
	}

	made, err := attach(*r.Attach, fds)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	s.links[r.ID] = made
	s.mu.Unlock()
	for _, l := range made {
		links = append(links, l.(interface{ FD() int }).FD())
	}
	return links, nil
}

func attach(o Order, fds []int) ([]link.Link, error) {
	if len(fds) != 2 {
		return nil, unix.EBADF
	}
	file, err := hostile.Own(os.NewFile(uintptr(fds[0]), "probed file"))
	if err != nil {
		return nil, errors.Join(err, unix.Close(fds[1]))
	}
	defer file.Close()

	program, err := ebpf.NewProgramFromFD(fds[1])
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return o.attach(file.Path(), program)
}

// answerOf returns the answer to a request that has ended with an error, or without.
func answerOf(id uint64, err error) answer {
	a := answer{ID: id}
	if err != nil {
		a.Error = err.Error()
		errors.As(err, &a.Number)
	}
	return a
}
