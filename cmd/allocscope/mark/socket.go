package mark

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/allocscope/allocscope/fleet/socket"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// Marks come through unix sockets (unix(7)). A connection brings one mark in one packet. The answer is
// one packet: answerOK, or the reason of a refusal.
//
// Each user who may mark has a socket of his own in socketFolder, to which the kernel lets nobody else
// but root connect: others can neither take its name nor fill its queue. An abstract socket of the
// process is the fallback, where the trace cannot write that folder, or does not share it with the
// program that marks. It vanishes with the trace, but any user can take its name before.
const socketFolder = "/run/allocscope"

// abstractAddress is the abstract socket for the marks of a process.
func abstractAddress(pid int) *net.UnixAddr {
	return &net.UnixAddr{Net: network, Name: "@allocscope/" + strconv.Itoa(pid)}
}

const network = "unixpacket"

// socketOf is the socket of a user in socketFolder for the marks of a process. Its name has the PID
// namespace: others may share the folder.
func socketOf(pid int, uid uint32) (*net.UnixAddr, error) {
	_, namespace, err := kernel.PIDNamespace()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%d-%d", namespace, pid, uid)
	return &net.UnixAddr{Net: network, Name: filepath.Join(socketFolder, name)}, nil
}

// listenForUser listens on a user's socket. The error wraps errOtherTrace if another trace does.
func listenForUser(address *net.UnixAddr, uid uint32) (*net.UnixListener, error) {
	listener, err := socket.Listen(address, int(uid))
	if errors.Is(err, socket.ErrTaken) {
		err = errOtherTrace
	}
	return listener, err
}

// dial connects to the trace of exactly that process: by this user's socket, or else by the abstract
// one. The error wraps ECONNREFUSED if neither is there.
func dial(pid int) (*net.UnixConn, error) {
	if address, err := socketOf(pid, uint32(os.Geteuid())); err == nil {
		if conn, err := net.DialUnix(network, nil, address); err == nil {
			return conn, nil
		}
	}
	return net.DialUnix(network, nil, abstractAddress(pid))
}
