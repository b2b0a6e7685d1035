package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// signatures are how the files begin by which a folder of allocscope is known.
var signatures = map[string]string{
	SummaryFile:  "{\n  \"schema\": \"allocscope/",
	TimelineFile: "time_s,rss_bytes,",
}

// takeOver opens what is at the place of a new folder and empties it of our files, or says why not.
func takeOver(parent *os.Root, base string, owner Owner, force bool) (*os.Root, error) {
	if err := mayTakeOver(parent, base, force); err != nil {
		return nil, err
	}
	root, err := openDir(parent, base)
	if err != nil {
		return nil, err
	}
	if err := clearFolder(root, owner); err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

func mayTakeOver(parent *os.Root, base string, force bool) error {
	info, err := parent.Lstat(base)
	switch {
	case err != nil:
		return err
	case info.Mode().Type() == fs.ModeSymlink:
		return errors.New("it is a symbolic link, which is not followed (choose another with --output)")
	case !info.IsDir():
		return errors.New("exists and is not a directory (choose another with --output)")
	case !force:
		return errors.New("exists (choose another with --output, or replace it with --force)")
	}
	return nil
}

// clearFolder makes an existing directory as good as new if it is one that allocscope may write to.
func clearFolder(root *os.Root, owner Owner) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	uid, err := ownerOf(dir)
	if err != nil {
		return err
	}
	if uid != owner.UID {
		return fmt.Errorf("exists and belongs to UID %d, not to UID %d (choose another with --output)", uid, owner.UID)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	if len(names) > 0 && !isOurs(root) {
		return errors.New("exists and holds files that are not from allocscope (choose another with --output)")
	}
	if err := dir.Chmod(dirMode); err != nil {
		return err
	}
	return removeOurs(root)
}

// isOurs says whether one of the files is there that every trace writes.
func isOurs(root *os.Root) bool {
	for name, signature := range signatures {
		if strings.HasPrefix(beginning(root, name, len(signature)), signature) {
			return true
		}
	}
	return false
}

// beginning is the first bytes of a regular file; empty for anything else.
func beginning(root *os.Root, name string, length int) string {
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data := make([]byte, length)
	n, _ := file.Read(data)
	return string(data[:n])
}

// removeOurs removes the files that allocscope writes, finished or not, and the directory of snapshots if it is empty then.
func removeOurs(root *os.Root) error {
	if err := removeFiles(root, func(name string) bool { return slices.Contains(fileNames, name) }); err != nil {
		return err
	}
	snapshots, err := openDir(root, snapshotDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer snapshots.Close()
	if err := removeFiles(snapshots, snapshotName.MatchString); err != nil {
		return err
	}
	if err := root.Remove(snapshotDir); !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// removeFiles removes the regular files whose name, or whose temporary name, is among ours.
func removeFiles(dir *os.Root, ours func(name string) bool) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(strings.TrimPrefix(entry.Name(), "."), ".tmp")
		if !ours(name) || entry.Name() != name && entry.Name() != temporaryName(name) {
			continue
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%s in it is not a regular file (remove it by hand)", entry.Name())
		}
		if err := dir.Remove(entry.Name()); err != nil {
			return fmt.Errorf("remove %s: %w", entry.Name(), cause(err))
		}
	}
	return nil
}
