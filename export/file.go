package export

import (
	"fmt"
	"io"
	"path/filepath"
)

// WriteFile makes a file outside of the folders of traces, with mode 0600 and for owner, in a directory that exists. It appears
// complete and on disk, or not at all, in place of an earlier one; a symbolic link is replaced, not followed.
func WriteFile(path string, owner Owner, write func(io.Writer) error) error {
	parent, err := openParent(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer parent.Close()
	folder := Folder{path: filepath.Dir(path), root: parent, owner: owner, earlier: true}
	if err := folder.replace(parent, filepath.Base(path), write); err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	return nil
}
