package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/allocscope/allocscope/shim"
)

// A place is the private folder of the session's copy of the shim.
type place struct {
	folder string
	shim   string // path
}

// folders are where a place can be, the best first. Other users do not reach XDG_RUNTIME_DIR.
func folders(isForOther bool) []string {
	shared := []string{"/tmp", "/dev/shm"}
	if own := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(own) && !isForOther {
		return append([]string{own}, shared...)
	}
	return shared
}

// makePlace makes a folder that all can read, and writes the shim into it: where libraries can be
// mapped, and LD_PRELOAD can name it. The command may be another user's.
func makePlace(isForOther bool) (*place, error) {
	var errs []error
	for _, parent := range folders(isForOther) {
		p, err := makePlaceIn(parent)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func makePlaceIn(parent string) (*place, error) {
	folder, err := os.MkdirTemp(parent, "allocscope-run-")
	if err != nil {
		return nil, err
	}
	p := &place{folder: folder}
	if err = os.Chmod(folder, 0o755); err == nil {
		p.shim, err = shim.Write(folder)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return p, nil
}

// remove removes the folder, unless a process still uses the shim: the dynamic linker would
// complain in each program that it starts. It reports whether one does.
func (p *place) remove() (used bool, err error) {
	if p.isUsed() {
		return true, nil
	}
	return false, os.RemoveAll(p.folder)
}

// isUsed reports whether a process that this user may read has mapped the shim.
func (p *place) isUsed() bool {
	maps, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, path := range maps {
		raw, err := os.ReadFile(path)
		if err == nil && bytes.Contains(raw, []byte(p.shim)) {
			return true
		}
	}
	return false
}
