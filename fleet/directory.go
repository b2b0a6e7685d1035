package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
)

// Names in the directory of an agent.
const (
	lockFile     = "lock"
	logFile      = "trace.log"
	stateFile    = "state.json"
	damagedFile  = "state.json.damaged"
	tracesFolder = "traces"
	spoolFolder  = "spool"
)

// ErrInUse means that another agent has the directory.
var ErrInUse = errors.New("another agent uses it")

// A directory holds the folders of traces and the state. Nobody but its owner may write it.
type directory struct {
	path  string
	owner folder.Owner
	lock  *os.File
	root  *os.Root
}

// openDirectory opens a directory, makes it where there is none, and locks it.
func openDirectory(path string) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}

	d := &directory{path: absolute, owner: folder.Owner{UID: os.Geteuid(), GID: os.Getegid()}}
	if err := d.open(); err != nil {
		d.close()
		return nil, fmt.Errorf("open %s: %w", path, plain(err))
	}

	return d, nil
}

func (d *directory) open() error {
	if err := d.ensure(d.path); err != nil {
		return err
	}

	if err := d.ensure(filepath.Join(d.path, tracesFolder)); err != nil {
		return err
	}

	var err error
	if d.root, err = os.OpenRoot(d.path); err != nil {
		return err
	}

	d.lock, err = d.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}

	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrInUse
		}
		return err
	}

	return nil
}

// ensure makes a directory where there is none, and refuses one that others may write.
func (d *directory) ensure(path string) error {
	err := os.Mkdir(path, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return err
	}

	name := filepath.Base(path)
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is a symbolic link or not a directory", name)
	case int(stat.Uid) != d.owner.UID:
		return fmt.Errorf("%s belongs to UID %d, not to UID %d", name, stat.Uid, d.owner.UID)
	case stat.Mode&0o022 != 0:
		return fmt.Errorf("others may write into %s (chmod 700)", name)
	}

	return nil
}

func (d *directory) close() {
	if d.root != nil {
		d.root.Close()
	}

	if d.lock != nil {
		d.lock.Close() // and unlocks
	}
}

// newLog returns the file for the log of a trace, empty.
func (d *directory) newLog() (*os.File, error) {
	flags := os.O_RDWR | os.O_CREATE | os.O_TRUNC | os.O_APPEND | unix.O_NOFOLLOW | unix.O_NONBLOCK
	return d.root.OpenFile(logFile, flags, 0o600)
}

// plain is an error without the path that its caller names.
func plain(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}

	return err
}

// tracePath is the path of the folder of a trace.
func (d *directory) tracePath(name string) string {
	return filepath.Join(d.path, tracesFolder, name)
}

var (
	// traceName is JOB-RANK-TIME, with a number behind it where that was taken.
	traceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*-(\d{8}T\d{6}Z)(-\d+)?$`)
	unsafe    = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

const (
	traceTime    = "20060102T150405Z"
	maxNameBytes = 64 // of the job in a name
)

// newTraceName is a name for the folder of a trace that begins now.
func (d *directory) newTraceName(id growth.Identity, pid int, now time.Time) string {
	job := unsafe.ReplaceAllString(id.Job, "-")
	job = strings.TrimLeft(job[:min(len(job), maxNameBytes)], "._-")
	if job == "" {
		job = "pid" + strconv.Itoa(pid)
	}

	if id.Rank >= 0 {
		job += "-" + strconv.Itoa(id.Rank)
	}

	name := job + "-" + now.UTC().Format(traceTime)
	for n, base := 2, name; d.exists(name); n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}

	return name
}

func (d *directory) exists(name string) bool {
	_, err := d.root.Lstat(filepath.Join(tracesFolder, name))
	return err == nil
}

// A kept folder of a trace.
type kept struct {
	name, at string
	bytes    int64
}

// maxKept bounds the folders that are listed.
const maxKept = 10_000

// list returns the folders of traces, the oldest first, by their names. Anything else there is an
// error, and is left alone.
func (d *directory) list() (all []kept, err error) {
	dir, err := d.root.Open(tracesFolder)
	if err != nil {
		return nil, err
	}

	defer dir.Close()

	entries, _ := dir.ReadDir(maxKept) // the error is io.EOF, or shows below
	for _, entry := range entries {
		match := traceName.FindStringSubmatch(entry.Name())
		if match == nil || !entry.IsDir() {
			err = fmt.Errorf("%s is no folder of a trace that this agent made: remove it",
				growth.Printable(filepath.Join(d.path, tracesFolder, entry.Name())))
			continue
		}
		k := kept{name: entry.Name(), at: match[1]}
		k.bytes = d.size(k.name)
		all = append(all, k)
	}

	slices.SortFunc(all, func(a, b kept) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name))
	})

	return all, err
}

// TraceFolders returns the folders of traces in the directory of an agent; of any other directory,
// itself.
func TraceFolders(place string) ([]string, error) {
	if _, err := os.Stat(place); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Join(place, tracesFolder) + "/.") // no pipe is waited for
	if errors.Is(err, fs.ErrNotExist) {
		return []string{place}, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()

	var folders []string
	names, _ := dir.Readdirnames(maxKept) // the names before an error count
	for _, name := range names {
		if traceName.MatchString(name) {
			folders = append(folders, filepath.Join(place, tracesFolder, name))
		}
	}
	return folders, nil
}

// size is the size of the files of a trace, in bytes.
func (d *directory) size(name string) (bytes int64) {
	path := tracesFolder + "/" + name
	_ = fs.WalkDir(d.root.FS(), path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // it follows no links
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})

	return bytes
}

// retain removes the oldest folders beyond a number and a size, but for the one that is being
// written. It returns the names of those that it removed, and the size of the others. One that cannot
// be removed is an error, and does not cost a later one its place.
func (d *directory) retain(
	keep int, keepBytes int64, writing string,
) (gone []string, left int64, err error) {
	all, err := d.list()
	for _, k := range all {
		left += k.bytes
	}

	count, bytes := len(all), left
	for _, k := range all {
		if count <= keep && bytes <= keepBytes {
			break
		}
		if k.name == writing {
			continue
		}
		count, bytes = count-1, bytes-k.bytes
		if removed := folder.Delete(d.tracePath(k.name), d.owner); removed != nil {
			err = errors.Join(err, removed)
			continue
		}
		gone, left = append(gone, k.name), left-k.bytes
	}

	return gone, left, err
}
