package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

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
	uid, err := uidOf(dir)
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
	if len(names) > 0 && !isTraceFolder(root) {
		return errors.New("exists and holds files that are not from allocscope (choose another with --output)")
	}
	if err := dir.Chmod(dirMode); err != nil {
		return err
	}
	return removeTraceFiles(root)
}

// isOurs says whether one of the files is there that every trace writes.
func isTraceFolder(root *os.Root) bool {
	for name, signature := range signatures {
		if strings.HasPrefix(readPrefix(root, name, len(signature)), signature) {
			return true
		}
	}
	return false
}

// beginning is the first bytes of a regular file; empty for anything else.
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

// removeOurs removes the files that allocscope writes, finished or not, and the directory of snapshots if it is empty then.
func removeTraceFiles(root *os.Root) error {
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

// openParent opens the directory in which the folder is made. Symbolic links on the way there are followed: whoever names
// a path under a linked home means it.
func openParent(path string) (*os.Root, error) {
	// The dot makes the kernel refuse what is not a directory; opening a named pipe would wait for a writer.
	parent, err := os.OpenRoot(path + "/.")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no directory %s (make it first)", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, cause(err))
	}
	return parent, nil
}

// openDir opens a directory inside another, neither through a symbolic link nor from anything else than a directory.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	at, err := parent.Open(".")
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link or not a directory", name)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// os.Root follows links that stay inside and would wait at a named pipe, hence the detour: this is the open directory.
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// makeDir makes a directory inside another and gives it to the owner. The error is fs.ErrExist if the name is taken.
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

// giveNewDir gives a directory to the owner that was made a moment ago. Between then and its opening it may have been
// exchanged for another, which is not given away: ours is empty and belongs to us.
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
		return errors.New("it was exchanged for another directory while it was made")
	}
	return owner.chown(dir)
}

// ownerOf is the user ID that an open file belongs to.
func uidOf(file *os.File) (int, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), nil
}
