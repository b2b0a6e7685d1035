package run

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// A place is the session's copy of the shim, in a folder that the tracer part alone can write.
// Where that is root, neither the command nor anybody else can put another file in its place.
type place struct {
	folder string
	shim   *os.File
	// lock is the open folder. Its lock is of this process and of the remover: while one of them
	// lives, no other session and no systemd-tmpfiles removes it.
	lock    *os.File
	remover *os.Process
	// alive is a pipe at whose end the remover begins.
	alive *os.File
}

// parents are where a place can be, the best first: users cannot write the first one. Each may be
// missing, or mounted so that nothing in it can be executed.
var parents = []string{"/run", "/dev/shm", "/tmp", "/var/tmp"}

const folderPrefix = "allocscope-run-"

// makePlace makes a place for a command of a user, whose process ends with the command.
func makePlace(command process) (*place, error) {
	var errs []error
	for _, parent := range parents {
		removeStale(parent)
		p, err := makePlaceIn(parent, command)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func makePlaceIn(parent string, command process) (_ *place, err error) {
	folder, err := os.MkdirTemp(parent, folderPrefix) // with mode 0700
	if err != nil {
		return nil, err
	}
	p := &place{folder: folder} // no result, which is nil where it must be closed
	defer func() {
		if err != nil {
			p.close()
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()

	if p.lock, err = os.Open(folder); err != nil {
		return nil, err
	}
	if err = unix.Flock(int(p.lock.Fd()), unix.LOCK_SH); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	if p.shim, err = shim.Write(folder); err != nil {
		return nil, err
	}
	if err = p.admit(command.uid); err != nil {
		return nil, err
	}
	return p, p.startRemover(command)
}

// admit lets the command find the shim by its name, which nobody else learns. Programs that root
// starts may go on as any user, and a file system without access lists lets all users search.
func (p *place) admit(uid int) error {
	switch uid {
	case 0:
		return p.lock.Chmod(0o711)
	case os.Geteuid():
		return nil
	}
	err := unix.Fsetxattr(int(p.lock.Fd()), "system.posix_acl_access", searchableBy(uid), 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return p.lock.Chmod(0o711)
	}
	return os.NewSyscallError("setxattr", err)
}

// searchableBy returns the access list of a folder that its owner may write, and one user search
// (acl(5); linux/posix_acl_xattr.h of the kernel).
func searchableBy(uid int) (list []byte) {
	const (
		version                       = 2
		ofOwner, ofUser, ofGroup      = 0x01, 0x02, 0x04
		mask, ofOthers, anybody       = 0x10, 0x20, ^uint32(0)
		read, write, search, noAccess = 4, 2, 1, 0
	)
	list = binary.LittleEndian.AppendUint32(list, version)
	for _, entry := range []struct {
		tag, access uint16
		id          uint32
	}{
		{ofOwner, read | write | search, anybody},
		{ofUser, search, uint32(uid)},
		{ofGroup, noAccess, anybody},
		{mask, search, anybody},
		{ofOthers, noAccess, anybody},
	} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.access)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}

	return list
}

// firstInherited is the first descriptor that is no standard one.
const firstInherited = 3

// startRemover starts the process that removes the place when the command and this process have
// ended, in whichever way, and no process uses the shim.
func (p *place) startRemover(command process) error {
	ended, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ended.Close()

	p.alive = alive

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()

	// Files that the caller of allocscope has left open, such as a locked one, would stay open as
	// long as the remover lives. On a kernel without the call they do.
	_ = unix.CloseRange(firstInherited, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)

	p.remover, err = os.StartProcess(reexec.Executable,
		[]string{child.RemoverName, p.folder}, &os.ProcAttr{
			Dir: "/", Env: []string{"GOMAXPROCS=1"}, Sys: &syscall.SysProcAttr{Setsid: true},
			Files: []*os.File{null, null, null, ended, command.file, p.shim, p.lock},
		})
	return err
}

// removeTime bounds how long the end of a session waits for its remover.
const removeTime = time.Second

// remove has the place removed. It waits for that if the command has ended.
func (p *place) remove(command process) {
	_ = p.alive.Close()
	removed := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := p.remover.Wait()
		removed <- state
	}()

	if command.hasEnded() {
		select {
		case state := <-removed:
			if state == nil || !state.Success() { // somebody has killed it
				_ = child.RemoveUnused(p.shim, p.lock)
			}
		case <-time.After(removeTime): // a process uses the shim still
		}
	}
	p.close()
}

func (p *place) close() {
	for _, file := range []*os.File{p.alive, p.shim, p.lock} {
		_ = file.Close() // there may be none
	}
}

// maxNames bounds the names that are read of a parent: a user may have made millions of files there.
const maxNames = 4096

// removeStale removes the places of sessions of which every process was killed, unless a process
// uses the shim of one.
func removeStale(parent string) {
	folder, err := os.Open(parent)
	if err != nil {
		return
	}
	defer folder.Close()

	names, _ := folder.Readdirnames(maxNames)
	for _, name := range names {
		if strings.HasPrefix(name, folderPrefix) {
			_ = removeStaleFolder(folder, name)
		}
	}
}

func removeStaleFolder(parent *os.File, name string) error {
	lock, err := openOwn(parent, name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}

	names, err := lock.Readdirnames(2) // io.EOF where there are none
	if len(names) == 0 {
		return os.Remove(lock.Name())
	}
	if len(names) > 1 || !shim.HasName(names[0]) {
		return fmt.Errorf("%s: not a folder of a session: %w", lock.Name(), err)
	}
	file, err := openOwn(lock, names[0], 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return child.RemoveUnused(file, lock)
}

// openOwn opens a file that is in an open folder and belongs to this user, who alone can have made
// it then. A mount, which may be a user's, can say so as well, and need not answer: it is left
// alone.
func openOwn(folder *os.File, name string, flags uint64) (*os.File, error) {
	fd, err := unix.Openat2(int(folder.Fd()), name, &unix.OpenHow{
		Flags:   flags | unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, os.NewSyscallError("openat2", err)
	}
	file := os.NewFile(uintptr(fd), filepath.Join(folder.Name(), name))

	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil && int(stat.Uid) != os.Geteuid() {
		err = unix.EPERM
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// A process is the command's, which becomes that when the launcher lets it.
type process struct {
	file *os.File // a pidfd
	uid  int
}

// openProcess opens the process of a PID.
func openProcess(pid int) (p process, err error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return p, os.NewSyscallError("pidfd_open", err)
	}
	p.file = os.NewFile(uintptr(fd), "process")

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, list, _ := strings.Cut(string(status), "\nUid:")
	if err == nil {
		_, err = fmt.Sscan(list, &p.uid) // the real one; the next is the effective one
	}
	if err != nil {
		return p, errors.Join(fmt.Errorf("read the user of process %d: %w", pid, err), p.file.Close())
	}
	return p, nil
}

// hasEnded reports whether the process has.
func (p process) hasEnded() bool {
	return child.HasEnded(p.file, false)
}

// awaitEnd returns once the process has ended.
func (p process) awaitEnd() { child.HasEnded(p.file, true) }
