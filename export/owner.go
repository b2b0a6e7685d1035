package export

import (
	"fmt"
	"os"
	"strconv"
)

// An Owner is whom files are given to. The zero value is root.
type Owner struct{ UID, GID int }

// OwnerFromEnvironment is the user who called sudo, by SUDO_UID and SUDO_GID. Where both are absent or empty, or where the
// process is not root and could not give files away, it is the current user. It is an error if one is missing or is not a
// number that can own a file.
func OwnerFromEnvironment(getenv func(string) string) (Owner, error) {
	current := Owner{os.Geteuid(), os.Getegid()}
	uid, gid := getenv("SUDO_UID"), getenv("SUDO_GID")
	if current.UID != 0 || uid == "" && gid == "" {
		return current, nil
	}
	var o Owner
	var err error
	if o.UID, err = parseID(uid); err != nil {
		return current, fmt.Errorf("read SUDO_UID: %w (unset SUDO_UID and SUDO_GID to write as root)", err)
	}
	if o.GID, err = parseID(gid); err != nil {
		return current, fmt.Errorf("read SUDO_GID: %w (unset SUDO_UID and SUDO_GID to write as root)", err)
	}
	return o, nil
}

// parseID refuses 2^32-1: chown(2) takes it for "leave as it is".
func parseID(text string) (int, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 1<<32-1 {
		return 0, fmt.Errorf("%q is not a user or group ID", text)
	}
	return int(id), nil
}

func (o Owner) isCurrent() bool { return o.UID == os.Geteuid() && o.GID == os.Getegid() }

// give makes the owner the owner of an open file or directory.
func (o Owner) give(file *os.File) error {
	if o.isCurrent() {
		return nil
	}
	if err := file.Chown(o.UID, o.GID); err != nil {
		return fmt.Errorf("give to UID %d, GID %d: %w", o.UID, o.GID, cause(err))
	}
	return nil
}
