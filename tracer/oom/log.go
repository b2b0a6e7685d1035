// Package oom reads the reports of the kernel's OOM killer from the kernel's log.
package oom

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

// logPath is the kernel's log, a record a read:
// https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
const logPath = "/dev/kmsg"

const (
	// maxRecordBytes is more than a record has: PRINTK_MESSAGE_MAX is 2048, and 8192 before Linux 6.5.
	maxRecordBytes = 16 << 10
	// maxRecords bounds the records of one reading: the log may grow meanwhile.
	maxRecords = 1 << 18
)

// A Log is the open log of the kernel. It is not safe for concurrent use.
type Log struct {
	fd     int
	parser parser
}

// Open opens the log at its oldest record. The error says how to read it.
func Open() (*Log, error) {
	fd, err := unix.Open(logPath, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("open %s: %w (kernel.dmesg_restrict: run as root, or with "+
			"CAP_SYSLOG)", logPath, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open %s: %w (in a container: run it on the node)", logPath, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", logPath, err)
	}

	const major, minor = 1, 11 // https://www.kernel.org/doc/Documentation/admin-guide/devices.txt
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR ||
		stat.Rdev != unix.Mkdev(major, minor) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open %s: it is not the kernel's log (in a container: run it on the "+
			"node)", logPath)
	}
	return &Log{fd: fd}, nil
}

// OpenAtEnd opens the log behind its newest record.
func OpenAtEnd() (*Log, error) {
	l, err := Open()
	if err != nil {
		return nil, err
	}
	if _, err := unix.Seek(l.fd, 0, unix.SEEK_END); err != nil {
		l.Close()
		return nil, fmt.Errorf("read %s: %w", logPath, err)
	}
	return l, nil
}

// Close closes the log.
func (l *Log) Close() { _ = unix.Close(l.fd) }

// Kills returns the kills since the last call, in order.
func (l *Log) Kills() (kills []growth.OOMKill, err error) {
	buffer := make([]byte, maxRecordBytes)
	for range maxRecords {
		n, err := unix.Read(l.fd, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN): // the end
			return kills, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE): // the next records were overwritten
			l.parser = parser{}
			continue
		case err != nil:
			return kills, fmt.Errorf("read %s: %w", logPath, err)
		}
		if kill, ok := l.parser.add(string(buffer[:n])); ok {
			kills = append(kills, kill)
		}
	}
	return kills, nil
}
