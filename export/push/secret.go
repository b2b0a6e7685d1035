package push

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const maxSecretBytes = 64 << 10

// ReadSecret reads a password or a token. A file that others than its owner can read is an error, and
// so is one that belongs neither to root nor to the current user.
func ReadSecret(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()

	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "", fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return "", fmt.Errorf("%s is not a regular file", path)
	case stat.Mode&0o077 != 0:
		return "", fmt.Errorf("%s has mode %04o, so that others than its owner may read it "+
			"(chmod 600 it)", path, stat.Mode&0o777)
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
		return "", fmt.Errorf("%s belongs to UID %d", path, stat.Uid)
	}

	data, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(data), "\r\n")
	if secret == "" || len(data) > maxSecretBytes || strings.ContainsAny(secret, "\r\n\x00") {
		return "", fmt.Errorf("%s is empty, or has more than one line", path)
	}
	return secret, nil
}
