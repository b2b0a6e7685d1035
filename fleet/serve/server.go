package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/allocscope/allocscope/export/page/origin"
	"github.com/allocscope/allocscope/fleet/socket"
)

// limits bound the resources that clients can take of the agent.
type limits struct {
	// header is the time for the header of a request, read for all of it, write for the answer, and
	// idle between two requests of a connection.
	header, read, write, idle time.Duration
	// shutdown is the time for requests that are being answered when the server ends.
	shutdown time.Duration
	// connections of each listener: see crowd.
	connections int
	// pause between two requests of a peer who asks in a loop.
	pause time.Duration
	// maxAge of the metrics in an answer.
	maxAge time.Duration
}

var defaultLimits = limits{
	header: 5 * time.Second, read: 10 * time.Second, write: 30 * time.Second,
	idle: 30 * time.Second, shutdown: 2 * time.Second, connections: 64,
	pause: 100 * time.Millisecond, maxAge: time.Second,
}

const (
	// maxHeaderBytes of a request; net/http adds 4 KiB.
	maxHeaderBytes = 8 << 10
	// maxBodyBytes of a request.
	maxBodyBytes = 4 << 10
)

// A Server listens, and answers once Serve is called.
type Server struct {
	limits limits
	// address and health are nil where there is none. The listeners and the servers are in the same
	// order.
	address, health *net.TCPAddr
	listeners       []net.Listener
	servers         []*http.Server
}

// Listen listens on the addresses and the socket of the options. It is an error if the token file
// could be read by others.
func Listen(ctx context.Context, o Options, source Source) (*Server, error) {
	return listen(ctx, o, source, defaultLimits)
}

func listen(ctx context.Context, o Options, source Source, l limits) (_ *Server, err error) {
	s := &Server{limits: l}
	defer func() {
		if err != nil {
			s.close()
		}
	}()

	if o.TokenFile != "" {
		if _, err := readToken(o.TokenFile); err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
	}
	if o.Listen != "" {
		all := s.routesOf(o.TokenFile, source)
		if s.address, err = s.listenTCP(ctx, o.Listen, o.Hosts, all); err != nil {
			return nil, err
		}
	}
	if o.Health != "" {
		all := healthRoutes(source)
		if s.health, err = s.listenTCP(ctx, o.Health, o.Hosts, all); err != nil {
			return nil, err
		}
	}
	if o.Socket != "" {
		if err := s.listenUnix(o.Socket, source); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// splitAddress splits HOST:PORT. No host is a loopback address: all addresses are 0.0.0.0 or [::].
func splitAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("%q is not HOST:PORT (such as %s)", address, DefaultListen)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, port, nil
}

func (s *Server) listenTCP(
	ctx context.Context, address string, hosts []string, all routes,
) (*net.TCPAddr, error) {
	host, port, err := splitAddress(address)
	if err != nil {
		return nil, err
	}

	network := "tcp"
	if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
		network = "tcp4" // tcp would turn 0.0.0.0 into all addresses of IPv6, too
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}

	at := listener.Addr().(*net.TCPAddr)
	s.add(listener, handleTCP(origin.HostsOf(at, append([]string{host}, hosts...)...), all))
	return at, nil
}

func (s *Server) listenUnix(path string, source Source) error {
	address := &net.UnixAddr{Net: "unix", Name: path}
	listener, err := socket.Listen(address, os.Geteuid())
	if err != nil {
		return err
	}
	s.add(peers{listener}, handleUnix(source))
	return nil
}

// add adds a listener, and the server of its requests.
func (s *Server) add(listener net.Listener, handler http.Handler) {
	c := newCrowd(listener, s.limits, peerOf)
	s.listeners = append(s.listeners, c)
	s.servers = append(s.servers, &http.Server{
		Handler:                      c.spread(handler),
		ConnContext:                  c.connContext,
		ConnState:                    c.noteState,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            s.limits.header,
		ReadTimeout:                  s.limits.read,
		WriteTimeout:                 s.limits.write,
		IdleTimeout:                  s.limits.idle,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     log.New(io.Discard, "", 0), // clients could fill it
	})
}

// Address returns the address of --listen; nil: there is none.
func (s *Server) Address() *net.TCPAddr { return s.address }

func (s *Server) close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
}

// Serve answers until the context ends, which is no error.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make([]error, len(s.servers))
	for i, server := range s.servers {
		running.Go(func() {
			defer cancel() // without one of them, the others end as well
			errs[i] = server.Serve(s.listeners[i])
		})
	}

	<-ctx.Done()
	limited, release := context.WithTimeout(context.WithoutCancel(ctx), s.limits.shutdown)
	defer release()
	for _, server := range s.servers {
		if server.Shutdown(limited) != nil {
			_ = server.Close()
		}
	}
	running.Wait()
	s.close()

	for _, err := range errs {
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
	}
	return nil
}

// peers accepts connections that know their user.
type peers struct{ *net.UnixListener }

// Accept implements net.Listener.
func (p peers) Accept() (net.Conn, error) {
	conn, err := p.AcceptUnix()
	if err != nil {
		return nil, err
	}
	uid, err := socket.PeerOf(conn)
	if err != nil {
		uid = unknownUser
	}
	return peerConn{conn, uid}, nil
}

// unknownUser is the number of no user (chown(2)).
const unknownUser = math.MaxUint32

// peerConn is a connection of a user, whom requests have in RemoteAddr.
type peerConn struct {
	*net.UnixConn
	uid uint32
}

// RemoteAddr implements net.Conn.
func (c peerConn) RemoteAddr() net.Addr { return peerAddr(c.uid) }

// peerAddr is a user, as the address of a connection.
type peerAddr uint32

// Network implements net.Addr.
func (peerAddr) Network() string { return "unix" }

// String implements net.Addr.
func (p peerAddr) String() string { return fmt.Sprintf("user %d", uint32(p)) }
