package serve

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// peerOf names who has opened a connection: the user on this machine, who has many addresses there, or
// another machine, by its address. A machine has a whole /64 of IPv6.
func peerOf(conn net.Conn) string {
	remote, isTCP := conn.RemoteAddr().(*net.TCPAddr)
	local, _ := conn.LocalAddr().(*net.TCPAddr)
	if !isTCP {
		return conn.RemoteAddr().String()
	}

	from, to := unmapped(remote.AddrPort()), unmapped(local.AddrPort())
	if uid, err := ownerOf(from, to); err == nil {
		return peerAddr(uid).String()
	}

	switch at := from.Addr(); {
	case at.IsLoopback():
		return "loopback"
	case at.Is6():
		network, _ := at.WithZone("").Prefix(64)
		return network.String()
	default:
		return at.String()
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// diagTimeout is how long the kernel has for an answer, which takes microseconds.
const diagTimeout = time.Second

// ownerOf returns the user who owns the socket of this machine that is connected from an address to
// another. The error wraps unix.ENOENT if there is none. See sock_diag(7).
func ownerOf(from, to netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)

	wait := unix.NsecToTimeval(diagTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, diagRequest(from, to), 0, kernel); err != nil {
		return 0, os.NewSyscallError("sendto", err)
	}

	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}

	return parseDiag(answer[:n])
}

// Offsets in struct inet_diag_req_v2 and struct inet_diag_msg, from the start of the message.
const (
	requestBytes = unix.SizeofNlMsghdr + 56
	requestID    = unix.SizeofNlMsghdr + 8 // struct inet_diag_sockid
	answerBytes  = unix.SizeofNlMsghdr + 72
	answerState  = unix.SizeofNlMsghdr + 1
	answerUID    = unix.SizeofNlMsghdr + 64
)

// diagRequest asks for the one socket that is connected from an address to another.
func diagRequest(from, to netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if from.Addr().Is6() {
		family = unix.AF_INET6
	}

	m := make([]byte, requestBytes)
	native, network := binary.NativeEndian, binary.BigEndian
	native.PutUint32(m[0:], requestBytes)
	native.PutUint16(m[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(m[6:], unix.NLM_F_REQUEST)
	m[unix.SizeofNlMsghdr], m[unix.SizeofNlMsghdr+1] = family, unix.IPPROTO_TCP

	id := m[requestID:]
	network.PutUint16(id[0:], from.Port())
	network.PutUint16(id[2:], to.Port())
	copy(id[4:20], from.Addr().AsSlice())
	copy(id[20:36], to.Addr().AsSlice())
	native.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return m
}

// parseDiag returns the owner of the socket in an answer. One that is not connected has none: it may
// be a listening one of the same port, or its program has closed it.
func parseDiag(m []byte) (uid uint32, err error) {
	const established = 1 // TCP_ESTABLISHED
	native := binary.NativeEndian
	switch {
	case len(m) < unix.SizeofNlMsghdr+4:
		return 0, fmt.Errorf("the kernel answers with %d bytes", len(m))
	case native.Uint16(m[4:]) == unix.NLMSG_ERROR:
		return 0, unix.Errno(-int32(native.Uint32(m[unix.SizeofNlMsghdr:])))
	case len(m) < answerBytes:
		return 0, fmt.Errorf("the kernel answers with %d bytes", len(m))
	case m[answerState] != established:
		return 0, unix.ENOENT
	}
	return native.Uint32(m[answerUID:]), nil
}
