// Package cache keeps data on disk that later traces would have to make again.
//
// A folder of the current user has one file for each entry. Nothing depends on it: an entry that is
// missing or damaged is made again. So are all entries where the folder belongs to somebody else,
// cannot be written or has no room. So no function here returns an error.
package cache

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	minFreeBytes  = 1 << 30 // of the file system: others may need the rest
	maxEntryBytes = 128 << 20
	headerBytes   = 8 // the checksum, and zeros

	// usedAfter is how old the time of an entry's last use may be. More would make a write of each
	// read.
	usedAfter = time.Hour
)

// entryName is the form of all files that the cache makes and removes.
var entryName = regexp.MustCompile(`^(new-)?[0-9a-f]{1,64}$`)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Folder has entries by name. Its methods may be called concurrently, by several processes too. A
// nil Folder has no entries, and takes none.
type Folder struct {
	dir     *os.File
	limit   int64 // bytes
	minFree int64 // bytes

	mu      sync.Mutex
	bytes   int64 // of all entries, by the last count and the entries stored since
	counted bool
	ended   bool // an entry could not be stored
}

// Open opens the folder at an absolute path, and makes it in a folder that exists. The path must
// not lead through a symbolic link, and the folder must belong to the current user alone. Otherwise
// it returns nil. Entries that were not used for longest make room when all take more than limit
// bytes. Entries that other processes store meanwhile come on top.
func Open(path string, limit int64) *Folder {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	parent, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(path), &how)
	if err != nil {
		return nil
	}
	defer unix.Close(parent)

	name := filepath.Base(path)
	_ = unix.Mkdirat(parent, name, 0o700) // it may be there
	how.Flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Openat2(parent, name, &how)
	if err != nil {
		return nil
	}

	f := &Folder{dir: os.NewFile(uintptr(fd), path), limit: limit, minFree: minFreeBytes}
	if _, ok := own(fd, unix.S_IFDIR); !ok {
		f.Close()
		return nil
	}
	return f
}

// own returns the status of an open file. ok is false if it is of another type, or somebody else
// than the current user can read or write it.
func own(fd int, fileType uint32) (stat unix.Stat_t, ok bool) {
	err := unix.Fstat(fd, &stat)
	return stat, err == nil && stat.Mode&unix.S_IFMT == fileType && stat.Mode&0o077 == 0 &&
		int(stat.Uid) == os.Geteuid()
}

// Close closes the folder.
func (f *Folder) Close() {
	if f != nil {
		f.dir.Close()
	}
}

// Load returns the contents of an entry, and nil if there is none that is whole.
func (f *Folder) Load(name string) []byte {
	if f == nil {
		return nil
	}

	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(f.dir.Fd()), name, flags, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()

	stat, ok := own(fd, unix.S_IFREG)
	if !ok || stat.Size < headerBytes || stat.Size > maxEntryBytes {
		return nil
	}

	content := make([]byte, stat.Size)
	if _, err := io.ReadFull(file, content); err != nil {
		return nil
	}
	if binary.LittleEndian.Uint64(content) != checksum([][]byte{content[headerBytes:]}) {
		return nil
	}

	if time.Since(time.Unix(stat.Mtim.Unix())) > usedAfter {
		_ = unix.UtimesNanoAt(fd, "", nil, unix.AT_EMPTY_PATH) // else it looks unused
	}
	return content[headerBytes:]
}

// checksum finds damage. Nobody else can have written the file.
func checksum(parts [][]byte) uint64 {
	sum := uint32(0)
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	return uint64(sum)
}

// Store keeps an entry of some parts, in place of one of its name. Other processes see the one or the
// other, whole.
func (f *Folder) Store(name string, parts ...[]byte) {
	size := int64(headerBytes)
	for _, part := range parts {
		size += int64(len(part))
	}
	if f == nil || size > min(maxEntryBytes, f.limit) {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	if !f.hasRoom(size) || !f.write(name, parts) {
		f.ended = true // the next one would fail, too
		return
	}

	f.bytes += roundToBlock(size)
	if !f.counted || f.bytes > f.limit {
		f.makeRoom()
		f.counted = true
	}
}

// hasRoom reports whether the file system has room for size bytes that nobody else will miss.
func (f *Folder) hasRoom(size int64) bool {
	var stat unix.Statfs_t
	err := unix.Fstatfs(int(f.dir.Fd()), &stat)
	free := int64(min(stat.Bavail, 1<<40)) * int64(stat.Bsize)
	return err == nil && free-size >= f.minFree
}

// write writes a file under another name first.
func (f *Folder) write(name string, parts [][]byte) bool {
	dir := int(f.dir.Fd())
	unique := make([]byte, 16)
	_, _ = rand.Read(unique) // never fails
	temporary := "new-" + hex.EncodeToString(unique)

	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, temporary, flags, 0o600)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), temporary)

	header := binary.LittleEndian.AppendUint64(nil, checksum(parts))
	for _, part := range append([][]byte{header}, parts...) {
		if err == nil {
			_, err = file.Write(part)
		}
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(dir, temporary, dir, name)
	}

	if err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
	}
	return err == nil
}

// A file is one of the folder, as makeRoom sees it.
type file struct {
	name string
	size int64 // bytes
	used int64 // ns since 1970
}

// makeRoom counts the entries. Beyond the limit it removes those that were not used for longest,
// until an eighth of the limit is free. In the same way it removes the temporary files of processes
// that were killed.
func (f *Folder) makeRoom() {
	files := f.list()
	f.bytes = 0
	for _, file := range files {
		f.bytes += file.size
	}
	if f.bytes <= f.limit {
		return
	}

	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.used, b.used) })
	for _, file := range files {
		if f.bytes <= f.limit-f.limit/8 {
			return
		}
		if unix.Unlinkat(int(f.dir.Fd()), file.name, 0) == nil {
			f.bytes -= file.size
		}
	}
}

// list returns the files that the cache has made.
func (f *Folder) list() []file {
	fd, err := unix.Openat(int(f.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), f.dir.Name())
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that it could read

	var files []file
	for _, name := range names {
		var stat unix.Stat_t
		err := unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && entryName.MatchString(name) {
			files = append(files, file{name, roundToBlock(stat.Size), stat.Mtim.Nano()})
		}
	}

	return files
}

// roundToBlock returns the bytes that a file of size bytes takes on most file systems.
func roundToBlock(size int64) int64 { return (size + 4095) &^ 4095 }
