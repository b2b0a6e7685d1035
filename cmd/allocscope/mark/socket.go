package mark

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

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

// openFolder makes a folder for sockets, and opens it. Users can reach sockets in it whose names they
// know. It is an error if anybody but root could put something there.
func openFolder(path string) (*os.File, error) {
	const mode = 0o711
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	folder, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}

	info, err := folder.Stat()
	if err == nil && (info.Sys().(*syscall.Stat_t).Uid != 0 || info.Mode()&0o022 != 0) {
		err = fmt.Errorf("%s can be written by others than root", path)
	}
	if err == nil {
		err = folder.Chmod(mode) // whatever the umask
	}
	if err != nil {
		folder.Close()
		return nil, err
	}
	return folder, nil
}

// listenForUser listens on a user's socket. The error wraps errOtherTrace if another trace does.
func listenForUser(address *net.UnixAddr, uid uint32) (*net.UnixListener, error) {
	folder, err := openFolder(filepath.Dir(address.Name))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil { // until it is closed
		return nil, fmt.Errorf("lock %s: %w", folder.Name(), err)
	}

	conn, err := net.DialUnix(network, nil, address)
	switch {
	case err == nil:
		conn.Close()
		return nil, errOtherTrace
	case errors.Is(err, unix.EAGAIN): // its queue is full
		return nil, errOtherTrace
	case errors.Is(err, unix.ECONNREFUSED): // a trace that was killed has left it behind
		if err := os.Remove(address.Name); err != nil {
			return nil, err
		}
	}

	listener, err := net.ListenUnix(network, address)
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.Chown(address.Name, int(uid), -1), os.Chmod(address.Name, 0o600))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
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
