// Package mark is the command `allocscope mark`, and the receiver of the marks of a trace. A mark
// is a line of text at a moment: the end of an epoch, a validation.
package mark

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/fleet/socket"
	"github.com/allocscope/allocscope/record"
)

// Receiver receives the marks of a trace: from `allocscope mark` (Listen), and from the output of a
// program (Follow). Its methods may be called from several goroutines.
type Receiver struct {
	record.Marks

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []*net.UnixListener
}

// NewReceiver returns a receiver that neither listens nor follows yet.
func NewReceiver() *Receiver {
	m := &Receiver{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Close ends listening and following, and waits for their goroutines.
func (m *Receiver) Close() {
	m.cancel()
	m.mu.Lock()
	closeAll(m.listeners)
	m.listeners = nil
	m.mu.Unlock()
	m.running.Wait()
	_ = socket.RemoveFolder(network, socketFolder) // where this user may
}

const (
	answerOK        = "ok"
	socketTimeout   = 5 * time.Second  // of both sides
	connectionPause = time.Millisecond // between two connections, at least
	maxConnections  = 16               // at a time and process, of users who may mark
)

// errOtherTrace means that another trace of the process receives its marks.
var errOtherTrace = errors.New("another trace receives them")

// Listen receives the marks that `allocscope mark` sends to a process: of its own user, of root,
// and of the users given. The error wraps errOtherTrace where another trace listens already.
func (m *Receiver) Listen(pid int, users ...uint32) error {
	own, err := userOf(pid)
	if err != nil {
		return fmt.Errorf("listen for marks of pid %d: %w", pid, err)
	}
	users = append([]uint32{0, own}, users...)
	slices.Sort(users)
	users = slices.Compact(users)

	listeners, err := listen(pid, users)
	if err != nil {
		return fmt.Errorf("listen for marks of pid %d: %w", pid, err)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		closeAll(listeners)
		return nil
	}
	m.listeners = append(m.listeners, listeners...)
	for _, l := range listeners {
		m.running.Go(func() { m.serve(l, users) })
	}
	return nil
}

// listen listens on the sockets for the marks of a process. It is enough to have the users', or the
// abstract one.
func listen(pid int, users []uint32) (listeners []*net.UnixListener, err error) {
	for _, uid := range users {
		address, err := socketOf(pid, uid)
		if err != nil {
			break
		}
		l, err := listenForUser(address, uid)
		if errors.Is(err, errOtherTrace) {
			closeAll(listeners)
			return nil, err
		}
		if err == nil {
			listeners = append(listeners, l)
		}
	}

	abstract, err := net.ListenUnix(network, abstractAddress(pid))
	if err == nil {
		return append(listeners, abstract), nil
	}
	if len(listeners) == len(users) {
		return listeners, nil // any user may have taken its name
	}

	closeAll(listeners)
	if errors.Is(err, unix.EADDRINUSE) {
		err = errOtherTrace
	}
	return nil, err
}

// closeAll closes listeners. Marks that are in their queues are lost.
func closeAll(listeners []*net.UnixListener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// serve answers connections until the listener is closed. A user who may not mark is refused at
// once, and blocks no other.
func (m *Receiver) serve(listener *net.UnixListener, users []uint32) {
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		time.Sleep(connectionPause)
		if err != nil {
			continue // no descriptors, for the moment
		}

		_ = conn.SetDeadline(time.Now().Add(socketTimeout)) // cannot fail: it is open
		if uid, err := socket.PeerOf(conn); err != nil || !slices.Contains(users, uid) {
			sendLast(
				conn,
				fmt.Sprintf("user %d may not mark this process (allowed: its own user, root, "+
					"the user who started the trace)", uid),
			)
			continue
		}

		select {
		case slots <- struct{}{}:
			m.running.Go(func() {
				m.answer(conn)
				<-slots
			})
		default:
			sendLast(conn, "too many marks at once")
		}
	}
}

// answer receives one mark.
func (m *Receiver) answer(conn *net.UnixConn) {
	defer context.AfterFunc(m.ctx, func() { _ = conn.Close() })()
	packet := make([]byte, 4*record.MaxMarkBytes)
	n, err := conn.Read(packet)

	switch text := record.MarkText(string(packet[:n])); {
	case err != nil:
		_ = conn.Close() // nothing was sent
	case text == "":
		sendLast(conn, "the mark is empty")
	case !m.Add(text, time.Now()):
		sendLast(conn, fmt.Sprintf("there have been %d marks, the maximum of a trace", record.MaxMarks))
	default:
		sendLast(conn, answerOK)
	}
}

// sendLast sends the answer, which the other side may or may not read.
func sendLast(conn *net.UnixConn, why string) {
	_, _ = conn.Write([]byte(why))
	_ = conn.Close()
}

// userOf returns the effective user of a process.
func userOf(pid int) (uint32, error) {
	field, err := statusField(pid, "Uid")
	if err != nil {
		return 0, err
	}

	_, effective, _ := strings.Cut(field, "\t") // real, effective, saved, for files
	effective, _, _ = strings.Cut(effective, "\t")
	uid, err := strconv.ParseUint(effective, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read user of pid %d: %w", pid, err)
	}
	return uint32(uid), nil
}

// statusField reads a line of /proc/PID/status. The error wraps os.ErrNotExist if there is no such
// process.
func statusField(pid int, name string) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}

	if err != nil {
		return "", err
	}

	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("read /proc/%d/status: no %s", pid, name)
}
