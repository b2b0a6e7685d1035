package export

import (
	"fmt"
	"io"
	"path/filepath"
)

// WriteFile makes a file outside of the folders of traces, with mode 0600 and for owner, in a directory that exists. It appears
// complete and on disk, or not at all, in place of an earlier one. What is there and is not a regular file, a symbolic link included, is an
// error.
func WriteFile(path string, owner Owner, write func(io.Writer) error) error {
	parent, err := openParent(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer parent.Close()
	base := filepath.Base(path)
	if info, err := parent.Lstat(base); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write %s: it is there already and is not a regular file", path)
	}
	folder := Folder{path: filepath.Dir(path), root: parent, owner: owner, earlier: true}
	if err := folder.replace(parent, base, write); err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	return nil
}
