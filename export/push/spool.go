package push

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Folders in a spool of profiles that will not be sent.
const (
	refusedDir = "refused"
	damagedDir = "damaged"
)

const (
	// maxEntryBytes bounds a file that is read.
	maxEntryBytes = 16 << 20
	// blockBytes is the least size of a file on disk.
	blockBytes = 4 << 10
	// asideShare of the size of the spool is kept of the refused profiles, and of the damaged ones.
	asideShare = 0.25

	lockTimeout = 10 * time.Second
	lockPoll    = 20 * time.Millisecond
)

// A spool is a directory of requests that wait to be sent, one a file, for one server and tenant. Its
// files have names that sort by age.
//
// Who adds or drops files has a lock on the directory, and who sends one has a lock on it. The kernel
// releases the locks of processes that end.
type spool struct {
	path  string
	root  *os.Root
	limit int64 // bytes
}

var (
	errBusy    = errors.New("another process has it")
	errDamaged = errors.New("damaged")
)

var entryName = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json$`)

// openSpool opens a folder of a spool, and makes both. Both have to belong to the current user
// alone.
func openSpool(directory, name string, limit int64) (*spool, error) {
	directory, err := filepath.Abs(directory)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	parent, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if info, err := os.Lstat(directory); err != nil || info.Mode().Type() == fs.ModeSymlink {
		return nil, fmt.Errorf("%s is a symbolic link, which is not followed", directory)
	}
	if err := checkPrivate(parent, directory); err != nil {
		return nil, err
	}

	root, err := subdirectory(parent, name)
	if err != nil {
		return nil, err
	}
	s := &spool{path: filepath.Join(directory, name), root: root, limit: limit}
	if err := checkPrivate(root, s.path); err != nil {
		_ = root.Close()
		return nil, err
	}
	return s, nil
}

// subdirectory opens a directory in a private one, and makes it.
func subdirectory(parent *os.Root, name string) (*os.Root, error) {
	if err := parent.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return parent.OpenRoot(name)
}

// checkPrivate refuses a directory into which another user could put files.
func checkPrivate(root *os.Root, path string) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()

	var stat unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &stat); err != nil {
		return err
	}
	if int(stat.Uid) != os.Geteuid() || stat.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to UID %d and has mode %04o: it must belong to UID %d alone, "+
			"with mode 0700", path, stat.Uid, stat.Mode&0o7777, os.Geteuid())
	}
	return nil
}

func (s *spool) close() error { return s.root.Close() }

// An entry is a file that waits.
type entry struct {
	name string
	size int64 // bytes, on disk
}

// list returns the waiting files, the oldest first.
func (s *spool) list() ([]entry, error) { return listEntries(s.root) }

func listEntries(root *os.Root) ([]entry, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	files, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}

	var out []entry
	for _, file := range files {
		if !entryName.MatchString(file.Name()) {
			continue
		}
		if info, err := file.Info(); err == nil { // it may have been sent meanwhile
			size := (info.Size() + blockBytes - 1) / blockBytes * blockBytes
			out = append(out, entry{file.Name(), max(size, blockBytes)})
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// add writes a request into the spool, on disk before it returns. It returns how many profiles were
// dropped to make room: the oldest ones, or this one where it is larger than the spool, or where all
// others are being sent.
func (s *spool) add(id string, body []byte) (dropped int, err error) {
	unlock, err := s.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()

	waiting, err := s.list()
	if err != nil {
		return 0, err
	}
	size := int64(len(body)+blockBytes-1) / blockBytes * blockBytes
	room := s.limit - size
	for _, w := range waiting {
		room -= w.size
	}
	for _, w := range waiting {
		if room >= 0 || size > s.limit {
			break
		}
		if s.drop(w.name) {
			room += w.size
			dropped++
		}
	}
	if room < 0 {
		return dropped + 1, nil
	}
	return dropped, s.write(id+".json", body)
}

// drop removes a file that is not being sent.
func (s *spool) drop(name string) bool {
	file, err := s.open(name)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || s.root.Remove(name) == nil
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && s.root.Remove(name) == nil
}

// write writes a file under another name first. The caller has the lock of the directory, so that a
// file of that name was left by a process that was killed.
func (s *spool) write(name string, body []byte) error {
	const temporary = ".new"
	if err := s.root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := s.root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = file.Write(body)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = s.root.Rename(temporary, name)
	}
	if err != nil {
		_ = s.root.Remove(temporary)
		return err
	}
	return s.sync()
}

// sync writes the directory to disk.
func (s *spool) sync() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock locks the directory. It does not wait for a process that is stopped.
func (s *spool) lock() (unlock func(), err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockPoll) {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = dir.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			_ = dir.Close()
			return nil, fmt.Errorf("lock %s: %w", s.path, err)
		}
	}
}

func (s *spool) open(name string) (*os.File, error) {
	return s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// A claim is a file that this process sends.
type claim struct {
	spool *spool
	name  string
	file  *os.File
	body  []byte
}

// claim locks a file and reads it. The error is errBusy where another process has it, and
// fs.ErrNotExist where it is gone. A file that is no request is moved aside; the error is
// errDamaged.
func (s *spool) claim(name string) (*claim, error) {
	if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, s.setAside(name, errors.New("it is not a regular file"))
	}
	file, err := s.open(name)
	if err != nil {
		return nil, err
	}

	c := &claim{spool: s, name: name, file: file}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		c.release()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errBusy
		}
		return nil, err
	}

	// Another process may have sent and removed it before the lock.
	own, err := file.Stat()
	if err == nil {
		var now fs.FileInfo
		if now, err = s.root.Lstat(name); err == nil && !os.SameFile(own, now) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		c.release()
		return nil, err
	}

	if c.body, err = readEntry(file, own); err == nil {
		err = checkRequest(c.body, strings.TrimSuffix(name, ".json"))
	}
	if err != nil {
		defer c.release()
		return nil, s.setAside(name, err)
	}
	return c, nil
}

func readEntry(file *os.File, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() || info.Size() > maxEntryBytes {
		return nil, fmt.Errorf("it is not a regular file of at most %d bytes", maxEntryBytes)
	}
	return io.ReadAll(io.LimitReader(file, maxEntryBytes))
}

// setAside moves a damaged file aside, and says so.
func (s *spool) setAside(name string, cause error) error {
	if err := s.moveTo(name, damagedDir); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s: %w (it is in %s)", errDamaged, name, cause,
		filepath.Join(s.path, damagedDir))
}

func (c *claim) release() { _ = c.file.Close() }

func (c *claim) remove() error {
	if err := c.spool.root.Remove(c.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *claim) moveTo(dir string) error { return c.spool.moveTo(c.name, dir) }

// moveTo moves a file into a folder of the spool, in which the oldest ones make room.
func (s *spool) moveTo(name, dir string) error {
	aside, err := subdirectory(s.root, dir)
	if err != nil {
		return err
	}
	defer aside.Close()
	if err := s.root.Rename(name, filepath.Join(dir, name)); err != nil {
		return err
	}

	kept, err := listEntries(aside)
	if err != nil {
		return err
	}
	room := int64(asideShare * float64(s.limit))
	for _, k := range slices.Backward(kept) {
		if room -= k.size; room < 0 {
			_ = aside.Remove(k.name)
		}
	}
	return nil
}
