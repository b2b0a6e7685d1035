package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

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
		err = giveNewDir(root, owner)
	}
	if err != nil {
		_ = parent.Remove(name)
		return nil, err
	}
	return root, nil
}

// giveNewDir gives a directory to the owner that was made a moment ago. Between then and its opening it may have been
// exchanged for another, which is not given away: ours is empty and belongs to us.
func giveNewDir(root *os.Root, owner Owner) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	uid, err := ownerOf(dir)
	if err != nil {
		return err
	}
	_, err = dir.Readdirnames(1)
	if uid != os.Geteuid() || !errors.Is(err, io.EOF) {
		return errors.New("it was exchanged for another directory while it was made")
	}
	return owner.give(dir)
}

// ownerOf is the user ID that an open file belongs to.
func ownerOf(file *os.File) (int, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), nil
}
