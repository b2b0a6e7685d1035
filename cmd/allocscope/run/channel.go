package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The launcher and the tracer part talk by packets of a socket (unix(7)). It is the standard input
// of the tracer part: sudo closes other descriptors.

// The order of the launcher, and the reports of the tracer part: the first byte of a packet.
const (
	orderInterrupt = 'i'

	// reportReady: all is attached, and the command may start. The path of the shim follows.
	reportReady = 'r'
	// reportEnded: the trace has ended. A second byte is its exit status.
	reportEnded = 's'
)

// maxPacket is the size of the largest packet: flags and variables of the user.
const maxPacket = 128 << 10

// A tracerRequest is the first packet for the elevated program, with the standard error of the
// launcher: the program must not use sudo's, which may be a terminal that ends with it.
type tracerRequest struct {
	// Arguments of the tracer part.
	Arguments []string
	// Environment has the user's variables that mean something to allocscope, which sudo drops.
	Environment []string
}

// restrict limits a request to the purpose of elevatedName: sudo may allow its user nothing else.
func (r *tracerRequest) restrict() error {
	if len(r.Arguments) < 2 || r.Arguments[1] != TracerName {
		return errors.New("it does not ask for a trace")
	}
	r.Arguments[0] = "allocscope"
	r.Environment = slices.DeleteFunc(r.Environment, func(e string) bool { return !meaningful(e) })
	return nil
}

// A traceTarget is the first packet for the tracer part.
type traceTarget struct {
	PID        int
	Executable string
	Arguments  []string
}

// channels are the two ends of a connection: the launcher's, and the file for the tracer part.
func channels() (own *net.UnixConn, other *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ownFile := os.NewFile(uintptr(fds[0]), "socket")
	defer ownFile.Close()
	other = os.NewFile(uintptr(fds[1]), "socket")
	if own, err = connectionOf(ownFile); err != nil {
		return nil, nil, errors.Join(err, other.Close())
	}
	return own, other, nil
}

// connectionOf returns the connection of a file that is one. Both are to be closed.
func connectionOf(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("it is no Unix socket"), conn.Close())
	}
	return unixConn, nil
}

// send sends a value as JSON, with files.
func send(conn *net.UnixConn, value any, files ...*os.File) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(data) > maxPacket {
		return fmt.Errorf("%d bytes of arguments and variables are more than %d", len(data),
			maxPacket)
	}

	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(data, rights, nil)
	return err
}

// receiveTimeout is how long a program waits for its first packet, which is sent at once.
const receiveTimeout = 30 * time.Second

// receive receives a packet of send, with so many files.
func receive(conn *net.UnixConn, value any, count int) (files []*os.File, err error) {
	data, rights := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*count))
	if err := conn.SetReadDeadline(time.Now().Add(receiveTimeout)); err != nil {
		return nil, err
	}
	n, rightsSize, _, _, err := conn.ReadMsgUnix(data, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}

	messages, err := unix.ParseSocketControlMessage(rights[:rightsSize])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	if len(files) != count {
		return nil, fmt.Errorf("%d files have come, not %d", len(files), count)
	}
	return files, json.Unmarshal(data[:n], value)
}

// packets returns the packets that follow, until the other side ends.
func packets(conn *net.UnixConn) <-chan []byte {
	all := make(chan []byte)
	go func() {
		defer close(all)
		for {
			data := make([]byte, unix.PathMax)
			n, err := conn.Read(data)
			if err != nil || n == 0 {
				return
			}
			all <- data[:n]
		}
	}()
	return all
}
