package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenFolder opens the folder of an earlier trace, to read its files and to write new ones, which are given to owner. It is an
// error if there is no summary.json or timeline.csv in it that allocscope wrote. The path itself may lead through symbolic links.
func OpenFolder(path string, owner Owner) (*Folder, error) {
	root, err := os.OpenRoot(filepath.Clean(path) + "/.") // the dot refuses what is not a directory
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open %s: there is no such folder (name the one that a trace has written)", path)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, cause(err))
	}
	if !isOurs(root) {
		_ = root.Close()
		return nil, fmt.Errorf("open %s: it holds no %s and no %s of allocscope (name the folder that a trace has written)", path, SummaryFile, TimelineFile)
	}
	return &Folder{path: path, root: root, owner: owner, earlier: true}, nil
}

// largestFile bounds what is read of a file of a folder, in bytes.
const largestFile = 512 << 20

// ReadFile hands a file of the folder to read. Anything but a regular file of at most 512 MiB is an error; fs.ErrNotExist if
// there is none.
func (f *Folder) ReadFile(name string, read func(io.Reader) error) error {
	dir, base, err := f.open(name, false)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, cause(err))
	}
	defer dir.Close()
	file, err := openRegular(dir, base)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, cause(err))
	}
	defer file.Close()
	if err := read(io.LimitReader(file, largestFile)); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// openRegular opens a regular file and does not wait for anything else.
func openRegular(dir *os.Root, base string) (*os.File, error) {
	file, err := dir.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("not a regular file")
	case err == nil && info.Size() > largestFile:
		err = fmt.Errorf("it has %d bytes, more than %d", info.Size(), int64(largestFile))
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
