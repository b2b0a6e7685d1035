package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// WriteFile makes a file outside of trace folders, with mode 0600, in a directory that exists. It
// appears complete and on disk, or not at all, and replaces an earlier file. Anything else that is
// there, such as a symbolic link, is an error.
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

	folder := Folder{path: filepath.Dir(path), root: parent, owner: owner, mayHoldTemporary: true}
	if err := folder.replace(parent, base, write); err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}

	return nil
}

// CreateFile makes a file outside of trace folders, with mode 0600, in a directory that exists. Anything
// that is already at path is an error. After an error of write there is no file.
func CreateFile(path string, owner Owner, write func(io.Writer) error) error {
	parent, err := openParent(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}

	defer parent.Close()

	base := filepath.Base(path)
	folder := Folder{path: filepath.Dir(path), root: parent, owner: owner}
	file, err := folder.create(parent, base)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write %s: it is there already (choose another with --output)", path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, cause(err))
	}

	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = parent.Remove(base)
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	return nil
}

// create makes a new file. Anything that has the name already is an error.
func (f *Folder) create(dir *os.Root, base string) (*os.File, error) {
	file, err := dir.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, fileMode)
	if err != nil {
		return nil, err
	}

	if err := f.owner.chown(file); err != nil {
		_ = file.Close()
		_ = dir.Remove(base)
		return nil, err
	}

	return file, nil
}

// replace writes a temporary file and renames it.
func (f *Folder) replace(dir *os.Root, base string, write func(io.Writer) error) error {
	temporary := temporaryName(base)
	file, err := f.create(dir, temporary)
	if f.mayHoldTemporary && errors.Is(err, fs.ErrExist) { // a killed process left it
		if err = dir.Remove(temporary); err == nil {
			file, err = f.create(dir, temporary)
		}
	}

	if err != nil {
		return err
	}

	err = write(file)
	if err == nil {
		err = file.Sync()
	}

	if closed := file.Close(); err == nil {
		err = closed
	}

	if err == nil {
		err = dir.Rename(temporary, base)
	}

	if err != nil {
		_ = dir.Remove(temporary)
	}

	return err
}

// An appendedFile names itself in its errors.
type appendedFile struct {
	name string
	file *os.File
}

func (a *appendedFile) Write(data []byte) (int, error) {
	n, err := a.file.Write(data)
	if err != nil {
		err = failed("write", a.name, err)
	}
	return n, err
}

func (a *appendedFile) Close() error {
	err := a.file.Sync()
	if closed := a.file.Close(); err == nil {
		err = closed
	}

	if err != nil {
		return failed("write", a.name, err)
	}

	return nil
}

// failed is the error of an operation on a file of a folder, with the remedy where a disk is full or
// the quota of the user is used up.
func failed(operation, name string, err error) error {
	err = fmt.Errorf("%s %s: %w", operation, name, cause(err))
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w (make room, or choose a folder on another disk with -o)", err)
	}
	return err
}

// cause is the error of a system call without the path of a temporary file or of an open directory.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// An Owner is the user and group that files are given to. The zero value is root.
type Owner struct{ UID, GID int }

// OwnerFromEnvironment returns the user who called sudo, from SUDO_UID and SUDO_GID. It is the
// current user where both are empty, and where the process is not root and cannot give files away.
// A value that is missing or cannot own a file is an error.
func OwnerFromEnvironment(getenv func(string) string) (Owner, error) {
	current := Owner{os.Geteuid(), os.Getegid()}
	uid, gid := getenv("SUDO_UID"), getenv("SUDO_GID")
	if current.UID != 0 || uid == "" && gid == "" {
		return current, nil
	}

	var o Owner
	var err error
	if o.UID, err = parseID(uid); err != nil {
		return current,
			fmt.Errorf("read SUDO_UID: %w (unset SUDO_UID and SUDO_GID to write as root)", err)
	}

	if o.GID, err = parseID(gid); err != nil {
		return current,
			fmt.Errorf("read SUDO_GID: %w (unset SUDO_UID and SUDO_GID to write as root)", err)
	}

	return o, nil
}

// parseID refuses 2^32-1, which means "leave unchanged" to chown(2).
func parseID(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, fmt.Errorf("%q is not a user or group ID", text)
	}
	return int(id), nil
}

func (o Owner) isCurrent() bool { return o.UID == os.Geteuid() && o.GID == os.Getegid() }

// chown gives an open file or directory to the owner.
func (o Owner) chown(file *os.File) error {
	if o.isCurrent() {
		return nil
	}
	if err := file.Chown(o.UID, o.GID); err != nil {
		return fmt.Errorf("give to UID %d, GID %d: %w", o.UID, o.GID, cause(err))
	}
	return nil
}
