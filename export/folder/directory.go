package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signatures are the beginnings of the files by which a folder of allocscope is recognised.
var signatures = map[string]string{
	SummaryFile:  "{\n  \"schema\": \"allocscope/",
	TimelineFile: "time_s,rss_bytes,",
}

// takeOver opens the directory at the place of a new folder and removes our files from it.
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
		return errors.New("it is a symbolic link, which is not followed (choose another with " +
			"--output)")
	case !info.IsDir():
		return errors.New("exists and is not a directory (choose another with --output)")
	case !force:
		return errors.New("exists (choose another with --output, or replace it with --force)")
	}

	return nil
}

// clearFolder prepares an existing directory for a new trace, if allocscope may write to it.
func clearFolder(root *os.Root, owner Owner) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}

	defer dir.Close()

	uid, err := uidOf(dir)
	if err != nil {
		return err
	}

	if uid != owner.UID {
		return fmt.Errorf("exists and belongs to UID %d, not to UID %d (choose another with "+
			"--output)",
			uid, owner.UID)
	}

	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}

	if len(names) > 0 && !isTraceFolder(root) {
		return errors.New("exists and holds files that allocscope did not write (choose another " +
			"with --output)")
	}

	if err := dir.Chmod(dirMode); err != nil {
		return err
	}

	return removeTraceFiles(root)
}

// isTraceFolder reports whether the directory holds one of the files that every trace writes.
func isTraceFolder(root *os.Root) bool {
	for name, signature := range signatures {
		if strings.HasPrefix(readPrefix(root, name, len(signature)), signature) {
			return true
		}
	}
	return false
}

// readPrefix returns the first bytes of a regular file; empty for anything else.
func readPrefix(root *os.Root, name string, length int) string {
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

// Delete removes the folder of a trace, complete or not: the files that allocscope writes, and then the
// directory. Anything else in it is an error and stays, and so is a folder that does not belong to the
// owner, or a symbolic link.
func Delete(path string, owner Owner) error {
	if err := deleteFolder(path, owner); err != nil {
		return fmt.Errorf("remove %s: %w", path, cause(err))
	}
	return nil
}

func deleteFolder(path string, owner Owner) error {
	parent, err := openParent(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	root, err := openDir(parent, filepath.Base(path))
	if err != nil {
		return err
	}
	defer root.Close()

	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	switch uid, err := uidOf(dir); {
	case err != nil:
		return err
	case uid != owner.UID:
		return fmt.Errorf("it belongs to UID %d, not to UID %d", uid, owner.UID)
	}
	if err := removeTraceFiles(root); err != nil {
		return err
	}
	err = parent.Remove(filepath.Base(path))
	if errors.Is(err, unix.ENOTEMPTY) {
		return errors.New("it holds files that allocscope did not write (remove it by hand)")
	}
	return err
}

// removeTraceFiles removes the files that allocscope writes, complete or not, and then the
// directory of snapshots if it is empty.
func removeTraceFiles(root *os.Root) error {
	if err := removeFiles(root, isFile); err != nil {
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

// removeFiles removes the regular files that ours accepts, by their names or temporary names.
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

// openParent opens the directory in which the folder is made. It follows symbolic links: a user who
// names a path under a linked home means the target.
func openParent(path string) (*os.Root, error) {
	// With the dot, the kernel refuses a named pipe, instead of waiting for its writer.
	parent, err := os.OpenRoot(path + "/.")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no directory %s (make it first)", path)
	}

	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, cause(err))
	}

	return parent, nil
}

// openDir opens a directory inside another. Symbolic links, and anything that is no directory, are
// errors.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	at, err := parent.Open(".")
	if err != nil {
		return nil, err
	}

	defer at.Close()

	fd, err := unix.Openat(int(at.Fd()), name,
		unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link or not a directory", name)
	}

	if err != nil {
		return nil, err
	}

	defer unix.Close(fd)
	// os.Root would follow links that stay inside, and wait at a named pipe. So it opens the
	// directory that is open already.
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// makeDir makes a directory inside another and gives it to the owner. The error is fs.ErrExist if
// the name is taken.
func makeDir(parent *os.Root, name string, owner Owner) (*os.Root, error) {
	if err := parent.Mkdir(name, dirMode); err != nil {
		return nil, err
	}

	root, err := openDir(parent, name)
	if err == nil {
		err = chownNewDir(root, owner)
	}

	if err != nil {
		_ = parent.Remove(name)
		return nil, err
	}

	return root, nil
}

// chownNewDir gives a new directory to the owner. Between its making and its opening, another user
// may have exchanged it. A directory of another user, or one that is not empty, is not ours and
// stays as it is.
func chownNewDir(root *os.Root, owner Owner) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}

	defer dir.Close()

	uid, err := uidOf(dir)
	if err != nil {
		return err
	}

	_, err = dir.Readdirnames(1)
	if uid != os.Geteuid() || !errors.Is(err, io.EOF) {
		return errors.New("another directory replaced it while it was made")
	}

	return owner.chown(dir)
}

// uidOf is the user ID that an open file belongs to.
func uidOf(file *os.File) (int, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), nil
}
