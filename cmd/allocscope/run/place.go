package run

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/shim"
)

// A place is the session's copy of the shim in a folder of its own.
type place struct {
	folder string
	shim   string // path
	// lock is the open folder, which systemd-tmpfiles leaves alone while it is locked.
	lock *os.File
}

// folders are where a place can be, the best first. XDG_RUNTIME_DIR is the last: other users, as
// whom the command may start programs, do not reach it, and it goes with the user's last login.
func folders(isForOther bool) []string {
	folders := []string{"/tmp", "/dev/shm"}
	if own := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(own) && !isForOther {
		folders = append(folders, own)
	}
	return folders
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

const folderPrefix = "allocscope-run-"

func makePlaceIn(parent string) (*place, error) {
	folder, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return nil, err
	}
	p := &place{folder: folder}
	if err = os.Chmod(folder, 0o755); err == nil {
		p.shim, err = shim.Write(folder)
	}
	if err == nil {
		p.lock, err = os.Open(folder)
	}
	if err == nil {
		err = unix.Flock(int(p.lock.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return p, nil
}

// placeOf returns the place of a shim whose launcher is gone; nil: the path is none of a place.
func placeOf(path string) *place {
	folder := filepath.Dir(path)
	if !shim.HasName(path) || !strings.HasPrefix(filepath.Base(folder), folderPrefix) {
		return nil
	}
	return &place{folder: folder, shim: path}
}

// remove removes the folder, unless a process still uses the shim: the dynamic linker would
// complain in each program that it starts. It reports whether one does.
func (p *place) remove() (used bool, err error) {
	_ = p.lock.Close() // there may be none
	if p.isUsed() {
		return true, nil
	}
	return false, errors.Join(os.Remove(p.shim), os.Remove(p.folder))
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
