package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// An entry has the comparable data of a file, folder or link.
type entry struct {
	mode     fs.FileMode
	uid, gid uint32
	size     int64 // of a file
	target   string
	modified time.Time // of a file
}

// A listing has the entries of a root by their paths in it.
type listing map[string]entry

// list returns the entries of a root, but no mounts in it.
func list(root string) (listing, error) {
	entries := make(listing)
	device, err := deviceOf(root)
	if err != nil {
		return nil, err
	}

	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}

		stat := info.Sys().(*syscall.Stat_t)
		e := entry{mode: info.Mode(), uid: stat.Uid, gid: stat.Gid}
		switch {
		case info.Mode().IsRegular():
			e.size, e.modified = info.Size(), info.ModTime()
		case info.Mode()&fs.ModeSymlink != 0:
			if e.target, err = os.Readlink(path); err != nil {
				return err
			}
		case info.IsDir() && stat.Dev != device:
			return fs.SkipDir
		}
		entries[strings.TrimPrefix(path, root)] = e
		return nil
	})
	return entries, err
}

func deviceOf(path string) (uint64, error) {
	var stat syscall.Stat_t
	err := syscall.Lstat(path, &stat)
	return stat.Dev, err
}

// left returns the differences of two listings, a line each, sorted. It leaves out files below the
// paths in kept. A file that was written again with the same content is the same: original has the
// files as they were, and now as they are.
func left(before, after listing, kept []string, original, now string) (lines []string) {
	for path, e := range after {
		old, wasThere := before[path]
		switch {
		case isBelow(path, kept):
		case !wasThere:
			lines = append(lines, "left: "+path)
		case !isSame(old, e, filepath.Join(original, path), filepath.Join(now, path)):
			lines = append(lines, fmt.Sprintf("changed: %s (%s)", path, e.mode))
		}
	}
	for path := range before {
		if _, isThere := after[path]; !isThere && !isBelow(path, kept) {
			lines = append(lines, "removed: "+path)
		}
	}
	slices.Sort(lines)
	return lines
}

func isBelow(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// isSame compares the content of files only if their times differ.
func isSame(old, new entry, oldPath, newPath string) bool {
	if old.modified.Equal(new.modified) {
		return old == new
	}

	old.modified = new.modified
	if old != new {
		return false
	}

	oldContent, err := os.ReadFile(oldPath)
	if err != nil {
		return false
	}
	newContent, err := os.ReadFile(newPath)
	return err == nil && bytes.Equal(oldContent, newContent)
}
