package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
)

// A PerfMapFile is where a runtime lists the code that it has generated, in the process's root
// directory, by the PID in the process's own PID namespace.
type PerfMapFile struct {
	root  string
	path  string
	uid   uint32
	began time.Time
}

// errForeignPerfMap: somebody else has written the file, or a process before with the same PID.
var errForeignPerfMap = errors.New("not written by this process")

// FindPerfMap describes the perf map of a process. It serves beyond the end of the process: a JVM
// writes the file then.
func FindPerfMap(p *Process) (*PerfMapFile, error) {
	uid, isKnown := p.fileUID()
	raw, err := p.read("status")
	if err != nil {
		return nil, err
	}
	stat, err := p.Stat()
	root := p.HoldRoot()
	if err != nil || !isKnown || root == "" {
		err = errors.Join(err, ErrPermission)
		return nil, fmt.Errorf("find the perf map of pid %d: %w", p.PID, err)
	}

	return &PerfMapFile{
		root: root, path: fmt.Sprintf("tmp/perf-%d.map", innerID(parseFields(raw), p.PID)), uid: uid,
		began: time.Now().Add(-stat.Age()),
	}, nil
}

// Open opens the file, if the process's user or root has written it since the process began.
func (f *PerfMapFile) Open() (*hostile.File, error) {
	root, err := os.OpenFile(f.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	defer root.Close()

	// /tmp is everybody's: a link there may lead to the map of another process.
	const plain = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS
	file, err := hostile.Open(root, f.path, plain, 0)
	if err != nil {
		return nil, err
	}

	const clockSteps = time.Second // the kernel's time of a file is coarse
	isOwn := file.Owner == 0 || file.Owner == f.uid
	if !isOwn || file.Modified.Before(f.began.Add(-clockSteps)) {
		return nil, errors.Join(errForeignPerfMap, file.Close())
	}
	return file, nil
}
