package process

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
)

// Bounds on the data read of the mounts of a process, which it can make as it likes.
const (
	maxMountBytes     = 4 << 20  // of its mountinfo
	maxInsideMounts   = 16       // cgroup mounts that are tried
	maxInsideDepth    = 32       // cgroups between the process's own and the root of a mount
	maxCgroupFile     = 64 << 10 // bytes of a file
	insideRetryPeriod = 60       // reads, after nothing was found
)

// An insideView is the cgroups of a process as mounts of its own show them. Where allocscope runs in a
// container, its own mounts end at the cgroup of that container.
//
// The files are the files of the process's cgroups, whatever it does: see open.
type insideView struct {
	of         *Process
	membership string
	shown      bool            // the process's own cgroup is
	cgroups    []Cgroup        // that account memory, from the process's own outwards
	files      []*hostile.File // of them
	untilRetry int
	stalled    bool // a path has not answered, and none is opened again

	openFile func(folder *os.File, path string, resolve uint64, allowed uint32) (*hostile.File, error)
}

// update opens the cgroups of a process, unless they are open.
func (v *insideView) update(p *Process, membership []byte) {
	isSame := v.of == p && v.membership == string(membership)
	if v.untilRetry--; v.stalled || isSame && (v.shown || v.untilRetry > 0) {
		return
	}
	v.close()
	v.of, v.membership, v.untilRetry = p, string(membership), insideRetryPeriod
	v.open()
}

// open opens the memory files of the cgroups. The kernel says which cgroup a mount shows, in the
// process's mountinfo, and which mount an open file is of. So a file is genuine if it is of a mount
// that is in mountinfo after it was opened: while it is open, no other mount can have that number.
// Where something else is mounted over the cgroup file system, be it a tmpfs with files of the same
// names, the numbers differ.
func (v *insideView) open() {
	root, err := os.OpenFile(v.of.path("root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer root.Close()

	files, cgroup := accounting([]byte(v.membership))
	for _, h := range v.mounts() {
		path, ok := h.folder(cgroup)
		if ok && h.memoryFiles == files && len(path) <= maxInsideDepth {
			v.openMount(root, h, path)
		}
	}
}

// openMount opens the memory files of the cgroups of a path, if the mount shows the last of them.
func (v *insideView) openMount(root *os.File, h hierarchy, path []string) {
	folderAt := func(n int) string { return filepath.Join(h.mountPoint, filepath.Join(path[:n]...)) }
	own := v.openInside(h, root, filepath.Join(folderAt(len(path)), "cgroup.procs"))
	if own == nil {
		return
	}
	defer own.Close()

	var cgroups []Cgroup
	var opened []*hostile.File
	for n := len(path); n >= 0; n-- {
		files := make(map[string]*hostile.File)
		for _, name := range h.names() {
			if file := v.openInside(h, root, filepath.Join(folderAt(n), name)); file != nil {
				files[name], opened = file, append(opened, file)
			}
		}
		cgroups = append(cgroups, Cgroup{h, path[:n], func(name string) []byte {
			if files[name] == nil {
				return nil
			}
			raw, err := files[name].ReadAll(maxCgroupFile)
			if err != nil {
				return nil // the cgroup was removed, or the file does not answer
			}
			return raw
		}})
	}
	if !slices.ContainsFunc(v.mounts(), h.equals) {
		closeAll(opened)
		return
	}
	v.shown, v.cgroups, v.files = true, append(v.cgroups, cgroups...), append(v.files, opened...)
}

// openInside opens a file below the root of a process, if it is of a mount; else it returns nil.
func (v *insideView) openInside(h hierarchy, root *os.File, path string) *hostile.File {
	if v.stalled {
		return nil
	}
	const resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	file, err := v.openFile(root, path, resolve, 0)
	if err != nil {
		v.stalled = errors.Is(err, hostile.ErrStalled)
		return nil
	}
	if file.Mount != h.mount {
		file.Close()
		return nil
	}
	return file
}

// mounts returns the cgroup mounts of the process, below its root.
func (v *insideView) mounts() []hierarchy {
	file, err := os.Open(v.of.path("mountinfo"))
	if err != nil {
		return nil
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxMountBytes))
	if err != nil {
		return nil
	}
	found := parseMounts(raw, memoryController)
	return found[:min(len(found), maxInsideMounts)]
}

func (v *insideView) close() {
	closeAll(v.files)
	*v = insideView{stalled: v.stalled, openFile: v.openFile}
}

func closeAll(files []*hostile.File) {
	for _, file := range files {
		file.Close()
	}
}
