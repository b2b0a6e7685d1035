package serve

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A crowd is a listener whose connections are bounded. It never has a client wait for the connections
// of others: where there are too many, the peer who has most loses one.
type crowd struct {
	net.Listener
	most  int
	pause time.Duration
	// peerOf names who has opened a connection.
	peerOf func(net.Conn) string

	mu    sync.Mutex
	conns []*member // oldest first
	peers map[string]*peer
}

// A member is a connection of a crowd.
type member struct {
	net.Conn
	of   *crowd
	peer *peer
	idle bool // it waits for its next request
}

// A peer has connections: a user of this machine, or another machine.
type peer struct {
	conns int
	// due is when all requests of the peer so far would have been answered, one each pause.
	due time.Time
}

// maxBurst is how many requests of a peer are answered without a pause.
const maxBurst = 20

func newCrowd(inner net.Listener, l limits, peerOf func(net.Conn) string) *crowd {
	return &crowd{
		Listener: inner, most: l.connections, pause: l.pause, peerOf: peerOf,
		peers: make(map[string]*peer),
	}
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}

	m, surplus := c.add(conn, c.peerOf(conn))
	if surplus != nil {
		_ = surplus.Close()
	}
	return m, nil
}

// add adds a connection. It returns one that must be closed for it; nil: there is room.
func (c *crowd) add(conn net.Conn, name string) (m, surplus *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[name]
	if p == nil {
		maps.DeleteFunc(c.peers, func(_ string, old *peer) bool {
			return old.conns == 0 && time.Since(old.due) > 0
		})
		p = new(peer)
		c.peers[name] = p
	}

	p.conns++
	m = &member{Conn: conn, of: c, peer: p}
	c.conns = append(c.conns, m)

	if len(c.conns) <= c.most {
		return m, nil
	}

	for _, other := range c.conns {
		isMore := surplus == nil || other.peer.conns > surplus.peer.conns
		isAsMany := surplus != nil && other.peer.conns == surplus.peer.conns
		if isMore || isAsMany && other.idle && !surplus.idle {
			surplus = other
		}
	}

	return m, surplus
}

// Close implements net.Conn.
func (m *member) Close() error {
	c := m.of
	c.mu.Lock()
	if at := slices.Index(c.conns, m); at >= 0 {
		c.conns = slices.Delete(c.conns, at, at+1)
		m.peer.conns--
	}
	c.mu.Unlock()
	return m.Conn.Close()
}

// noteState is http.Server.ConnState.
func (c *crowd) noteState(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.(*member).idle = state == http.StateIdle
}

// memberKey is the key of the member in the context of a request.
type memberKey struct{}

// connContext is http.Server.ConnContext.
func (c *crowd) connContext(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, memberKey{}, conn)
}

// spread has a peer who asks in a loop wait, so that its requests take little time of the agent.
func (c *crowd) spread(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := r.Context().Value(memberKey{}).(*member)
		select {
		case <-r.Context().Done():
		case <-time.After(c.wait(m.peer)):
			handler.ServeHTTP(w, r)
		}
	})
}

// wait returns how long the next request of a peer has to wait.
func (c *crowd) wait(p *peer) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()

	now := time.Now()
	if p.due.Before(now) {
		p.due = now
	}
	p.due = p.due.Add(c.pause)
	return p.due.Sub(now) - maxBurst*c.pause
}
