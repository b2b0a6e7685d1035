package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// An archive is an initramfs in the making, in the format "newc" (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w       *bufio.Writer
	entries map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriter(w), entries: map[string]bool{".": true}}
}

// File types and permissions of entries (inode(7)).
const (
	regular   = 0o100755
	directory = 0o040755
	symlink   = 0o120777
)

// put adds an entry and the folders above it. modified is in seconds since 1970.
func (a *archive) put(name string, mode int, modified int64, data []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.entries[name] {
		return
	}
	a.entries[name] = true
	a.put(path.Dir(name), directory, 0, nil)
	a.write(name, mode, modified, data)
}

// write leaves errors to bufio.Writer, which keeps the first.
func (a *archive) write(name string, mode int, modified int64, data []byte) {
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		len(a.entries), mode, 0, 0, 1, modified, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.w.WriteString(header + padding(len(header)))
	a.w.Write(data)
	a.w.WriteString(padding(len(data)))
}

func padding(length int) string { return "\x00\x00\x00"[:-length&3] }

// copy adds a file of this machine. Where it is behind symbolic links, it is added under its own path, with a link to it.
// The time stays: Python compares those of its files.
func (a *archive) copy(from, to string) error {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(real)
	if err != nil {
		return err
	}
	if from == to && real != from {
		a.put(to, symlink, 0, []byte(real))
		to = real
	}
	a.put(to, regular, info.ModTime().Unix(), data)
	return nil
}

func (a *archive) close() error {
	a.write("TRAILER!!!", 0, 0, nil)
	return a.w.Flush()
}
