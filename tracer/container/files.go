package container

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/process"
)

// Bounds on the search for files. Smaller files in RAM that a process holds are one row; all
// others, and those beyond, are the rest of their kind.
const (
	minFileBytes   = 1 << 20
	maxDescriptors = 16 << 10 // of all processes
	maxFiles       = 1024     // of each kind
	maxCached      = 64       // whose page cache is counted
	maxSearchTime  = 200 * time.Millisecond
)

// A file has memory, or its page cache has.
type file struct {
	device, inode uint64
	pid           int    // of a process that holds it; 0: none in the container does
	name          string // of that process
	descriptor    int    // there; -1: it has mapped it
	path          string
	bytes         int64
	size          uint64 // its length in bytes
	count         int    // of small files that this one sums; 0: it is one
}

// files are the files that the processes of a container hold: shared in RAM, the largest first, those
// that a process holds before all others; and cached, whose bytes readCache sets.
type files struct {
	shared, cached []file
	small          map[int]*file // in RAM, the sum of each process
	seen           map[[2]uint64]bool
	end            time.Time
	descriptors    int
}

// filesOf finds files by the descriptors and the mappings of processes, and in the file systems in
// RAM that the named process sees.
func (r *Reader) filesOf(members []member) *files {
	f := &files{
		small: make(map[int]*file), seen: make(map[[2]uint64]bool), end: time.Now().Add(maxSearchTime),
	}
	inRAM := process.RAMDevices(r.named)
	if r.ram != 0 {
		inRAM[r.ram] = true
	}

	for i := range members {
		f.addDescriptors(&members[i], inRAM)
	}
	for i := range members {
		if members[i].status.Shared >= minFileBytes {
			f.addMappings(&members[i], inRAM)
		}
	}

	bySize := func(a, b file) int { return cmp.Compare(b.bytes, a.bytes) }
	for i := range members {
		if sum := f.small[members[i].pid]; sum != nil {
			f.shared = append(f.shared, *sum)
		}
	}
	slices.SortStableFunc(f.shared, bySize)
	slices.SortStableFunc(f.cached, bySize)

	held := len(f.shared)
	process.EachRAMFile(r.named, func(device, inode uint64, path string, bytes int64) {
		if bytes >= minFileBytes {
			f.add(&f.shared, file{device: device, inode: inode, path: path, bytes: bytes})
		}
	})
	slices.SortStableFunc(f.shared[held:], bySize)
	return f
}

// add adds a file once.
func (f *files) add(to *[]file, one file) {
	id := [2]uint64{one.device, one.inode}
	if f.seen[id] || len(*to) >= maxFiles {
		return
	}
	f.seen[id] = true
	*to = append(*to, one)
}

// addSmall adds a small file in RAM once to the sum of the process that holds it.
func (f *files) addSmall(m *member, one file) {
	id := [2]uint64{one.device, one.inode}
	if f.seen[id] {
		return
	}
	f.seen[id] = true
	sum := f.small[m.pid]
	if sum == nil {
		sum = &file{inode: uint64(m.start), pid: m.pid, name: m.status.Name, descriptor: -1}
		f.small[m.pid] = sum
	}
	sum.count++
	sum.bytes += one.bytes
}

func (f *files) isOver() bool {
	return f.descriptors >= maxDescriptors || time.Now().After(f.end)
}

// addDescriptors adds the open files of a process. Nothing here waits for a file system: a
// descriptor leads to its file without a path, and the kernel asks no server for its size.
func (f *files) addDescriptors(m *member, inRAM map[uint64]bool) {
	folder := filepath.Join("/proc", strconv.Itoa(m.pid), "fd")
	dir, err := os.Open(folder)
	if err != nil {
		return
	}
	defer dir.Close()

	for !f.isOver() {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			f.descriptors++
			link := filepath.Join(folder, name)
			one, ok := identify(link)
			switch {
			case !ok:
				continue
			case one.bytes < minFileBytes && inRAM[one.device]:
				f.addSmall(m, one)
				continue
			case one.size < minFileBytes:
				continue
			}
			one.pid, one.name = m.pid, m.status.Name
			one.descriptor, _ = strconv.Atoi(name)
			if one.path, err = os.Readlink(link); err != nil {
				continue
			}
			if inRAM[one.device] {
				f.add(&f.shared, one)
			} else {
				f.add(&f.cached, one)
			}
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

// identify reads a regular file behind a link of /proc; false: it is another. bytes are its blocks.
func identify(link string) (f file, ok bool) {
	var stat unix.Statx_t
	const wanted = unix.STATX_BASIC_STATS
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, wanted, &stat)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return f, false
	}
	const block = 512 // of stx_blocks
	return file{
		device: unix.Mkdev(stat.Dev_major, stat.Dev_minor), inode: stat.Ino, descriptor: -1,
		bytes: int64(min(stat.Blocks*block, 1<<62)), size: stat.Size,
	}, true
}

// addMappings adds files in RAM that a process has mapped, and has no descriptor of.
func (f *files) addMappings(m *member, inRAM map[uint64]bool) {
	if f.isOver() {
		return
	}
	p, err := process.OpenAny(m.pid)
	if err != nil {
		return
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		return
	}

	for i := range maps {
		mapped := &maps[i]
		if !mapped.Shared || !inRAM[mapped.Device] || f.seen[[2]uint64{mapped.Device, mapped.Inode}] {
			continue
		}
		link := filepath.Join("/proc", strconv.Itoa(m.pid), "map_files",
			strconv.FormatUint(mapped.Start, 16)+"-"+strconv.FormatUint(mapped.End, 16))
		one, ok := identify(link)
		switch {
		case !ok || one.inode != mapped.Inode:
		case one.bytes < minFileBytes:
			f.addSmall(m, one)
		default:
			one.pid, one.name, one.path = m.pid, m.status.Name, mapped.Path
			f.add(&f.shared, one)
		}
	}
}

// readCache counts the page cache of the largest files (cachestat(2), Linux 6.5). A copy of the
// descriptor is asked: to open the file once more could be seen, and could wait. Files without a
// block device of their own are left out: to close the copy could have NFS write, or FUSE wait.
func (f *files) readCache() {
	end := time.Now().Add(maxSearchTime)
	f.cached = f.cached[:min(len(f.cached), maxCached)]
	for i := range f.cached {
		one := &f.cached[i]
		one.bytes = 0
		if unix.Major(one.device) != 0 && time.Now().Before(end) {
			one.bytes = cacheOf(one)
		}
	}
	slices.SortStableFunc(f.cached, func(a, b file) int { return cmp.Compare(b.bytes, a.bytes) })
}

// cacheOf is the page cache of a file in bytes; 0: it is not known.
func cacheOf(f *file) int64 {
	pidfd, err := unix.PidfdOpen(f.pid, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(pidfd)
	fd, err := unix.PidfdGetfd(pidfd, f.descriptor, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)

	same, ok := identify(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
	if !ok || same.device != f.device || same.inode != f.inode { // the number is another file's by now
		return 0
	}
	var cached unix.Cachestat_t
	if unix.Cachestat(uint(fd), &unix.CachestatRange{}, &cached, 0) != nil {
		return 0
	}
	return int64(cached.Cache) * int64(process.PageSize)
}
