package process

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// Bounds on the file systems in RAM that are scanned, and on the walk through one.
const (
	maxRAMMounts  = 32
	maxRAMEntries = 20_000
	maxRAMDepth   = 6
	maxRAMTime    = 200 * time.Millisecond
)

// A RAMFileSystems is how full the tmpfs that a process sees were at one moment, by device.
type RAMFileSystems struct {
	at   time.Time
	used map[uint64]int64
}

// A ramMount is a tmpfs in reach of a process.
type ramMount struct {
	device uint64
	path   string // of the mount, as the process sees it
}

// parseRAMMounts finds the paths of tmpfs in the text of /proc/PID/mountinfo, each once.
func parseRAMMounts(raw []byte) []string {
	var found []string
	for line := range strings.Lines(string(raw)) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		kind, _, _ := strings.Cut(filesystem, " ")
		fields := strings.Fields(mount) // number, parent, device, root, mount point, ...
		if kind != "tmpfs" || len(fields) < 5 {
			continue
		}
		if path := unescape(fields[4]); !slices.Contains(found, path) && len(found) < maxRAMMounts {
			found = append(found, path)
		}
	}
	return found
}

// openRAM opens the folder where a tmpfs is mounted, which another one may cover by now; nil: something
// else is there. The folder is not kept open, since a mount in use cannot be unmounted.
func openRAM(root *os.File, path string) (folder *hostile.File, device uint64, s unix.Statfs_t) {
	const resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	folder, err := hostile.Open(root, path, resolve, unix.S_IFDIR)
	if err != nil {
		return nil, 0, s
	}

	var stat unix.Stat_t
	fd := int(folder.Stream().Fd())
	err = errors.Join(unix.Fstatfs(fd, &s), unix.Fstat(fd, &stat))
	if err != nil || s.Type != unix.TMPFS_MAGIC {
		folder.Close()
		return nil, 0, s
	}
	return folder, uint64(stat.Dev), s
}

// eachRAM calls a function for each tmpfs that the process sees.
func (p *Process) eachRAM(do func(m ramMount, folder *hostile.File, stat unix.Statfs_t)) {
	file, err := p.open("mountinfo")
	if err != nil {
		return
	}
	defer file.Close()
	raw, err := hostile.OfProcess(file).ReadAll(maxMountinfoBytes)
	if err != nil {
		return
	}
	root, err := os.OpenFile(p.path("root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer root.Close()

	var known []uint64
	for _, path := range parseRAMMounts(raw) {
		folder, device, stat := openRAM(root, path)
		if folder == nil {
			continue
		}
		if !slices.Contains(known, device) {
			known = append(known, device)
			do(ramMount{device, path}, folder, stat)
		}
		folder.Close()
	}
}

// RAMFileSystems returns how full the tmpfs are that the process sees.
func (p *Process) RAMFileSystems() RAMFileSystems {
	// Times of files are of a clock that is up to a tick behind.
	const tick = 20 * time.Millisecond
	now := RAMFileSystems{at: time.Now().Add(-tick), used: make(map[uint64]int64)}
	p.eachRAM(func(m ramMount, _ *hostile.File, stat unix.Statfs_t) {
		now.used[m.device] = usedOf(stat)
	})
	return now
}

func usedOf(stat unix.Statfs_t) int64 { return int64(stat.Blocks-stat.Bfree) * stat.Bsize }

// minRAMGrowth is the growth of a tmpfs in bytes from which its new files are looked for.
const minRAMGrowth = 1 << 20

// RAMFilesSince returns the tmpfs that have grown since an earlier moment, the largest growth first, with the
// files that the user of the process has written since.
func (p *Process) RAMFilesSince(before RAMFileSystems) []growth.RAMFiles {
	uid, ok := p.fileUID()
	var grown []growth.RAMFiles
	p.eachRAM(func(m ramMount, folder *hostile.File, stat unix.Statfs_t) {
		used, isKnown := before.used[m.device]
		f := growth.RAMFiles{
			Path: growth.Printable(m.path), Growth: usedOf(stat) - used, Left: Unknown,
		}
		if !isKnown || f.Growth < minRAMGrowth {
			return
		}
		if stat.Blocks > 0 {
			f.Left = int64(stat.Bavail) * stat.Bsize
		}
		if ok {
			var largest int64
			m.walk(folder, time.Now().Add(maxRAMTime), func(path string, stat *unix.Stat_t) {
				bytes := stat.Blocks * statBlock
				isNew := !time.Unix(stat.Ctim.Unix()).Before(before.at)
				if stat.Uid != uid || !isNew || bytes == 0 {
					return
				}
				f.New++
				f.NewBytes += bytes
				if bytes > largest {
					largest, f.Largest = bytes, growth.Printable(path)
				}
			})
		}
		grown = append(grown, f)
	})

	slices.SortStableFunc(grown, func(a, b growth.RAMFiles) int { return cmp.Compare(b.Growth, a.Growth) })
	return grown
}

// fileUID is the user as whom the process makes files.
func (p *Process) fileUID() (uid uint32, ok bool) {
	raw, err := p.read("status")
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(raw), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line) // real, effective, saved, file system
	if len(fields) < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[3], 10, 32)
	return uint32(n), err == nil
}

// RAMDevices are the devices of the tmpfs that a process sees.
func RAMDevices(p *Process) map[uint64]bool { return p.tmpfsMounts() }

// EachRAMFile calls a function for each file of the tmpfs that a process sees, with its path there
// and its bytes in RAM, as far as it finds them within a fifth of a second.
func EachRAMFile(p *Process, do func(device, inode uint64, path string, bytes int64)) {
	end := time.Now().Add(maxRAMTime)
	p.eachRAM(func(m ramMount, folder *hostile.File, _ unix.Statfs_t) {
		m.walk(folder, end, func(path string, stat *unix.Stat_t) {
			do(m.device, stat.Ino, path, stat.Blocks*statBlock)
		})
	})
}

const statBlock = 512 // bytes of a block in st_blocks

// walk calls a function for each file of a tmpfs whose folder is open, until end.
func (m ramMount) walk(folder *hostile.File, end time.Time, do func(string, *unix.Stat_t)) {
	w := ramWalk{device: m.device, end: end, do: do}
	w.walk(int(folder.Stream().Fd()), m.path, 0)
}

// A ramWalk finds the files of a tmpfs. It follows no link, and enters no other mount, not even to
// look at it: that may be on FUSE, and never answer.
type ramWalk struct {
	device  uint64
	end     time.Time
	entries int
	do      func(path string, stat *unix.Stat_t)
}

// walk finds the files of a folder that is open.
func (w *ramWalk) walk(fd int, path string, depth int) {
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	folder := os.NewFile(uintptr(again), path)
	defer folder.Close()

	for {
		names, err := folder.Readdirnames(256)
		for _, name := range names {
			if w.entries++; w.entries > maxRAMEntries || time.Now().After(w.end) {
				return
			}
			w.add(again, filepath.Join(path, name), name, depth)
		}
		if err != nil {
			return
		}
	}
}

// add reports a file, or the files of a folder.
func (w *ramWalk) add(folder int, path, name string, depth int) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := unix.Openat2(folder, name, &how)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || uint64(stat.Dev) != w.device {
		return
	}

	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if depth < maxRAMDepth {
			w.walk(fd, path, depth+1)
		}
	case unix.S_IFREG:
		w.do(path, &stat)
	}
}
