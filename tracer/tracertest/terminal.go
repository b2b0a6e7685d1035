package tracertest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// OpenTerminal opens a pseudo-terminal of 80 columns and 24 lines: the side of the person, and the
// side of the program.
func OpenTerminal(t testing.TB) (person, program *os.File) {
	t.Helper()
	person = Must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = person.Close() })
	NoError(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	size := &unix.Winsize{Row: 24, Col: 80}
	NoError(t, unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, size))

	number := Must(unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN))(t)
	path := filepath.Join("/dev/pts", strconv.Itoa(number))
	program = Must(os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}
