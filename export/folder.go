package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	dirMode  fs.FileMode = 0o700
	fileMode fs.FileMode = 0o600
)

// A Folder is the output folder of one trace. It is written by root into a directory of another user, who may move, replace
// and link whatever is in it meanwhile: everything is done relative to the open directory, no symbolic link is followed, and
// a file is only written to after it was made anew. Directories have mode 0700, files 0600, both belong to the Owner.
//
// Only the names of the constants above and of SnapshotFile can be written.
type Folder struct {
	path    string
	root    *os.Root
	owner   Owner
	earlier bool // it was there before: a temporary file may be, too
}

// CreateFolder makes the folder. Its parent must exist.
//
// Whatever is at path already is an error. With force a directory is taken over if it belongs to owner and is either empty
// or holds a summary.json or timeline.csv that allocscope wrote: its mode becomes 0700 and the files that allocscope writes
// are removed from it, no other. A symbolic link is an error always, wherever it leads.
func CreateFolder(path string, owner Owner, force bool) (*Folder, error) {
	if path == "" {
		return nil, errors.New("create output folder: its name is empty (name one with --output)")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	parent, err := openParent(filepath.Dir(absolute))
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	defer parent.Close()
	base := filepath.Base(absolute)
	root, err := makeDir(parent, base, owner)
	if errors.Is(err, fs.ErrExist) {
		root, err = takeOver(parent, base, owner, force)
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, cause(err))
	}
	return &Folder{path: path, root: root, owner: owner}, nil
}

// Path is the path that the folder was created with. It may lead elsewhere by now: for people to read, not to open.
func (f *Folder) Path() string { return f.path }

// Close lets go of the folder; nothing is removed.
func (f *Folder) Close() error { return f.root.Close() }

// WriteFile makes a file of what write writes. The file appears under its name complete and on disk, or not at all: after
// an error an earlier file of that name is still as it was.
func (f *Folder) WriteFile(name string, write func(io.Writer) error) error {
	dir, base, err := f.open(name, true)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, cause(err))
	}
	defer dir.Close()
	if err := f.replace(dir, base, write); err != nil {
		return fmt.Errorf("write %s: %w", name, cause(err))
	}
	return nil
}

// Append makes a file that is written while the trace goes on: what was written is there even if allocscope is killed. It
// is an error if there is something of that name. Close brings it to disk.
func (f *Folder) Append(name string) (io.WriteCloser, error) {
	dir, base, err := f.open(name, true)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, cause(err))
	}
	defer dir.Close()
	file, err := f.create(dir, base)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, cause(err))
	}
	return &appendedFile{name, file}, nil
}

// Remove removes a file. It is an error, fs.ErrNotExist, if there is none.
func (f *Folder) Remove(name string) error {
	dir, base, err := f.open(name, false)
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, cause(err))
	}
	defer dir.Close()
	if err := dir.Remove(base); err != nil {
		return fmt.Errorf("remove %s: %w", name, cause(err))
	}
	return nil
}

// open opens the directory that a name lies in; with orMake it is made if it is not there.
func (f *Folder) open(name string, orMake bool) (*os.Root, string, error) {
	dir, base, err := splitName(name)
	if err != nil {
		return nil, "", err
	}
	root, err := openDir(f.root, dir)
	if errors.Is(err, fs.ErrNotExist) && orMake {
		root, err = makeDir(f.root, dir, f.owner)
	}
	return root, base, err
}
