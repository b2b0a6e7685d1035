package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Marks come through abstract unix sockets, one for each traced process, which vanish with the trace. A connection brings
// one mark in one packet, and gets one packet: markTaken, or why the mark was not taken.
const (
	markTaken       = "ok"
	markTimeout     = 5 * time.Second  // for both sides
	betweenMarks    = time.Millisecond // at least, between connections that are answered
	mostConnections = 16               // at a time and process, of those who may mark
)

// errMarksTaken means that the marks of a process go elsewhere.
var errMarksTaken = errors.New("another trace takes them (what `allocscope mark` says goes there)")

// markAddress is the abstract socket for the marks of a process.
func markAddress(pid int) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: "@allocscope/" + strconv.Itoa(pid)}
}

// listen takes the marks that `allocscope mark` sends to a process, from its own user, root and the users given. The error
// wraps errMarksTaken where another trace does so already.
func (m *marker) listen(pid int, users ...uint32) error {
	own, err := userOf(pid)
	if err != nil {
		return fmt.Errorf("listen for marks of pid %d: %w", pid, err)
	}
	listener, err := net.ListenUnix("unixpacket", markAddress(pid))
	if errors.Is(err, unix.EADDRINUSE) {
		err = errMarksTaken
	}
	if err != nil {
		return fmt.Errorf("listen for marks of pid %d: %w", pid, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return listener.Close()
	}
	m.listeners[pid] = listener
	m.running.Go(func() { m.serve(listener, append([]uint32{0, own}, users...)) })
	return nil
}

// serve answers connections until the listener is closed. Who may not mark is refused at once and blocks nobody.
func (m *marker) serve(listener *net.UnixListener, users []uint32) {
	slots := make(chan struct{}, mostConnections)
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		time.Sleep(betweenMarks)
		if err != nil {
			continue // no descriptors, for the moment
		}
		_ = conn.SetDeadline(time.Now().Add(markTimeout)) // cannot fail: it is open
		if uid, err := peerOf(conn); err != nil || !slices.Contains(users, uid) {
			sendLast(conn, fmt.Sprintf("user %d may not mark this process (its own user, root, and who started the trace may)", uid))
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

// answer takes one mark.
func (m *marker) answer(conn *net.UnixConn) {
	defer context.AfterFunc(m.ctx, func() { _ = conn.Close() })()
	packet := make([]byte, 4*maxMark)
	n, err := conn.Read(packet)
	switch text := markText(string(packet[:n])); {
	case err != nil:
		_ = conn.Close() // it has said nothing
	case text == "":
		sendLast(conn, "the mark is empty")
	case !m.add(text, time.Now()):
		sendLast(conn, fmt.Sprintf("there have been %d marks, which is as many as a trace takes", mostMarks))
	default:
		sendLast(conn, markTaken)
	}
}

// sendLast sends the answer, which the other side may or may not read.
func sendLast(conn *net.UnixConn, why string) {
	_, _ = conn.Write([]byte(why))
	_ = conn.Close()
}

// peerOf is the user on the other side of a connection, as the kernel says.
func peerOf(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	controlled := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlled, err); err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}

// userOf is the effective user of a process.
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

// statusField reads a line of /proc/PID/status. The error wraps os.ErrNotExist if there is no such process.
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
