package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Replaceable returns the first part of an absolute path, without links, that users other than root
// can write or replace, and why. It is empty if there is none.
func Replaceable(path string) (part, why string, err error) {
	var parts []string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		parts = append([]string{p}, parts...)
		if p == filepath.Dir(p) {
			break
		}
	}

	for _, p := range parts {
		info, err := os.Lstat(p)
		if err != nil {
			return "", "", err
		}

		const writable = 0o022
		isSticky := info.IsDir() && info.Mode()&os.ModeSticky != 0 // each entry is its owner's
		switch uid := info.Sys().(*syscall.Stat_t).Uid; {
		case uid != 0:
			return p, fmt.Sprintf("belongs to UID %d", uid), nil
		case info.Mode()&writable != 0 && !isSticky:
			return p, fmt.Sprintf("has mode %04o", info.Mode().Perm()), nil
		}
	}

	return "", "", nil
}
