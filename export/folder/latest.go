package folder

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

// LatestLink is the name of the symbolic link beside the folders of traces that leads to the latest
// one.
const LatestLink = "allocscope-latest"

// LinkLatest makes LatestLink, in the working directory, lead to the folder, whose path must be
// relative and below it. The link belongs to the owner of the folder.
//
// Others may change the working directory meanwhile. Only a symbolic link of that name is replaced, in
// a directory that everybody may write only one of the owner, of the current user or of root. Nothing
// that it leads to is touched.
func (f *Folder) LinkLatest() error {
	if err := f.linkLatest(); err != nil {
		return fmt.Errorf("link %s to %s: %w", LatestLink, f.path, cause(err))
	}
	return nil
}

func (f *Folder) linkLatest() error {
	if !filepath.IsLocal(f.path) {
		return errors.New("it is not below the working directory")
	}

	dir, err := os.OpenFile(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	at := int(dir.Fd())

	temporary := temporaryName(LatestLink + "-" + rand.Text())
	if err := unix.Symlinkat(f.path, at, temporary); err != nil {
		return err
	}

	err = f.giveLink(at, temporary)
	if err == nil {
		err = unix.Renameat2(at, temporary, at, LatestLink, unix.RENAME_NOREPLACE)
	}
	if errors.Is(err, unix.EEXIST) {
		return f.exchangeLink(at, temporary)
	}
	if err != nil {
		_ = unix.Unlinkat(at, temporary, 0)
	}
	if errors.Is(err, unix.EINVAL) {
		return errors.New("the file system has no rename that replaces nothing, as NFS has none: " +
			"name the folder where a command takes DIR")
	}
	return err
}

// giveLink gives a new link to the owner. Between its making and its opening, another user may have
// exchanged it. A link of another user, or to something else, stays as it is.
func (f *Folder) giveLink(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	to := make([]byte, len(f.path)+1)
	n, err := unix.Readlinkat(fd, "", to)
	if err != nil || int(stat.Uid) != os.Geteuid() || string(to[:n]) != f.path {
		return errors.New("something else replaced it while it was made")
	}

	if f.owner.isCurrent() {
		return nil
	}
	return unix.Fchownat(fd, "", f.owner.UID, f.owner.GID, unix.AT_EMPTY_PATH)
}

// exchangeLink replaces an earlier link by a new one, and removes it. A file that is no such link
// gets its name back.
func (f *Folder) exchangeLink(at int, temporary string) error {
	if err := f.mayReplace(at, LatestLink); err != nil {
		_ = unix.Unlinkat(at, temporary, 0)
		return err
	}

	err := unix.Renameat2(at, temporary, at, LatestLink, unix.RENAME_EXCHANGE)
	if err == nil {
		if err = f.mayReplace(at, temporary); err != nil { // it was exchanged since
			_ = unix.Renameat2(at, temporary, at, LatestLink, unix.RENAME_EXCHANGE)
		}
	}

	if removed := unix.Unlinkat(at, temporary, 0); err == nil {
		err = removed
	}
	return err
}

// mayReplace returns an error unless a name belongs to a link that allocscope may have made.
func (f *Folder) mayReplace(at int, name string) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		return errors.New("it exists and is no symbolic link (remove it)")
	}
	return checkLinkOwner(at, int(stat.Uid), f.owner)
}

// checkLinkOwner refuses a link that another user may have made to mislead: in a directory that
// everybody may write.
func checkLinkOwner(dir, uid int, owner Owner) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, ".", &stat, 0); err != nil {
		return err
	}

	const writableByOthers = 0o002
	isOwn := uid == 0 || uid == os.Geteuid() || uid == owner.UID
	if !isOwn && stat.Mode&writableByOthers != 0 {
		return fmt.Errorf("it belongs to UID %d, not to you", uid)
	}
	return nil
}

// Choose returns the path of the folder that a command is to read: the argument, or where
// LatestLink in the working directory leads if there is none. command is how the user calls it, such
// as "allocscope view". Several arguments are an error that names the newest.
func Choose(arguments []string, command string, owner Owner) (string, error) {
	switch len(arguments) {
	case 0:
		return latest(command, owner)
	case 1:
		return arguments[0], nil
	}

	newest, at := arguments[0], time.Time{}
	for _, path := range arguments {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}
	}
	newest = growth.Printable(newest)
	return "", fmt.Errorf("%d folders are named, and one can be shown: the newest is %s (%s %s)",
		len(arguments), newest, command, newest)
}

// latest returns where LatestLink leads.
func latest(command string, owner Owner) (string, error) {
	info, err := os.Lstat(LatestLink)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no %s here, the link to the latest trace: name its folder "+
			"(%s DIR)", LatestLink, command)
	case err != nil:
		return "", fmt.Errorf("open %s: %w", LatestLink, cause(err))
	case info.Mode().Type() != fs.ModeSymlink:
		return "", fmt.Errorf("%s is no symbolic link: name the folder of a trace (%s DIR)",
			LatestLink, command)
	}

	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("open %s: its owner is unknown", LatestLink)
	}
	if err := checkLinkOwner(unix.AT_FDCWD, int(stat.Uid), owner); err != nil {
		return "", fmt.Errorf("open %s: %w: name the folder of a trace (%s DIR)", LatestLink, err,
			command)
	}

	path, err := os.Readlink(LatestLink)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", LatestLink, cause(err))
	}
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("open %s: it leads out of this folder, to %q: name the folder of a "+
			"trace (%s DIR)", LatestLink, path, command)
	}
	return path, nil
}
