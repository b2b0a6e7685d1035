// Package socket listens on Unix sockets (unix(7)) that one user can reach, and knows who connects.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// folderMode of a folder that openFolder makes: users can reach sockets in it whose names they know.
const folderMode = 0o711

// ErrTaken means that another process listens on a socket.
var ErrTaken = errors.New("another process listens on it")

// openFolder makes a folder for sockets, or opens the one that is there. It is an error if anybody but
// its owner, who must be root or this user, could put something there.
func openFolder(path string) (*os.File, error) {
	folder, isNew, err := makeFolder(path)
	if err != nil {
		return nil, err
	}

	info, err := folder.Stat()
	if err == nil {
		err = checkFolder(info, path)
	}
	if err == nil && isNew {
		err = folder.Chmod(folderMode) // whatever the umask
	}
	if err != nil {
		folder.Close()
		return nil, err
	}

	return folder, nil
}

// makeFolder makes a folder, or opens the one that is there.
func makeFolder(path string) (folder *os.File, isNew bool, err error) {
	for {
		made := os.Mkdir(path, folderMode)
		if made != nil && !errors.Is(made, fs.ErrExist) {
			return nil, false, made
		}
		folder, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return folder, made == nil, err
		}
		// RemoveFolder of another process was faster.
	}
}

// checkFolder refuses a folder into which others than root and this user could put something.
func checkFolder(info os.FileInfo, path string) error {
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case owner != 0 && owner != os.Geteuid():
		return fmt.Errorf("%s belongs to UID %d: it must belong to root or to UID %d", path, owner,
			os.Geteuid())
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%s has mode %04o: its owner alone may write it", path, info.Mode().Perm())
	}
	return nil
}

// Listen listens on a socket of a user, to which the kernel lets nobody else but root connect. It makes
// the folder unless it is there, and lets other users pass through it where the socket is for one. It
// replaces a socket that was left behind. The error wraps ErrTaken if another process listens there,
// and it is an error if others than root and this user could put something into the folder.
func Listen(address *net.UnixAddr, uid int) (*net.UnixListener, error) {
	folder, err := lockFolder(filepath.Dir(address.Name))
	if err != nil {
		return nil, err
	}
	defer folder.Close()

	if uid != os.Geteuid() {
		if err := letPass(folder); err != nil {
			return nil, err
		}
	}

	if err := removeStale(address); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address.Name, err)
	}
	listener, err := net.ListenUnix(address.Net, address)
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.Chown(address.Name, uid, -1), os.Chmod(address.Name, 0o600))
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// letPass lets all users reach files in a folder whose names they know.
func letPass(folder *os.File) error {
	const pass = 0o111
	info, err := folder.Stat()
	if err != nil || info.Mode()&pass == pass {
		return err
	}
	return folder.Chmod(info.Mode().Perm() | pass)
}

// lockFolder makes a folder for sockets, or opens it, and locks it until it is closed.
func lockFolder(path string) (*os.File, error) {
	for {
		folder, err := openFolder(path)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
			folder.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if isAt(folder, path) {
			return folder, nil
		}
		folder.Close() // RemoveFolder was faster
	}
}

// isAt reports whether a path still leads to an open folder.
func isAt(folder *os.File, path string) bool {
	opened, err := folder.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, there)
}

// RemoveFolder removes a folder for sockets unless somebody listens in it. Sockets that were left
// behind go with it.
func RemoveFolder(network, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	folder, err := lockFolder(path)
	if err != nil {
		return err
	}
	defer folder.Close()

	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	isUsed := false
	for _, name := range names {
		address := &net.UnixAddr{Net: network, Name: filepath.Join(path, name)}
		isUsed = removeStale(address) != nil || isUsed
	}
	if isUsed {
		return nil
	}
	return os.Remove(path)
}

// removeStale removes a socket on which nobody listens any more: its process was killed. Connecting
// to another kind of file is refused as well, and that stays.
func removeStale(address *net.UnixAddr) error {
	info, err := os.Lstat(address.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("there is a file that is no socket")
	}

	conn, err := net.DialUnix(address.Net, nil, address)
	switch {
	case err == nil:
		conn.Close()
		return ErrTaken
	case errors.Is(err, unix.EAGAIN): // its queue is full
		return ErrTaken
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(address.Name)
	}

	return err
}

// PeerOf returns the user on the other side of a connection (SO_PEERCRED).
func PeerOf(conn *net.UnixConn) (uid uint32, err error) {
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
