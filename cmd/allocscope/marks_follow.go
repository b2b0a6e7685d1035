package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const lookForMarks = 200 * time.Millisecond // between looks at a file; marks may be late by that

// follow takes the marks in the lines that a program prints: into a file, which is followed as it grows, is cut short or
// replaced; into a FIFO; or, for "-", to standard input. Lines that are in the file already have no time and are left out.
func (m *marker) follow(path string) error {
	if path == "-" {
		return m.followInput(os.Stdin)
	}
	file, err := openOutput(path)
	if err != nil {
		return fmt.Errorf("follow marks: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, unix.ESPIPE) {
		_ = file.Close() // it was only read
		return fmt.Errorf("follow marks in %s: %w", path, err)
	}
	t := &tail{marker: m, path: path, file: file}
	m.running.Go(t.run)
	return nil
}

// openOutput opens a file or a FIFO without waiting for a writer. Devices are not opened: that may act on them.
func openOutput(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w (make it first, or start the program that writes it)", err)
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && info.Mode()&os.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("open %s: neither a file nor a FIFO", path)
	}
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// A tail is a file that is followed.
type tail struct {
	marker *marker
	path   string
	file   *os.File
	lines  lines
}

func (t *tail) run() {
	defer func() { _ = t.file.Close() }() // it was only read
	buffer := make([]byte, maxLine)
	for t.marker.ctx.Err() == nil {
		t.read(buffer)
		t.reopen(buffer)
		select {
		case <-t.marker.ctx.Done():
		case <-time.After(lookForMarks):
		}
	}
}

// read takes what there is.
func (t *tail) read(buffer []byte) {
	for t.marker.ctx.Err() == nil {
		_ = t.file.SetReadDeadline(time.Now().Add(lookForMarks)) // files need none
		n, err := t.file.Read(buffer)
		t.lines.feed(buffer[:n], t.marker.addLine)
		if err != nil {
			return
		}
	}
}

// reopen goes to the start of the file after it was cut short, and to the new one after it was replaced.
func (t *tail) reopen(buffer []byte) {
	now, err := os.Stat(t.path)
	if err != nil {
		return // between two files, perhaps
	}
	was, err := t.file.Stat()
	if err != nil {
		return
	}
	if os.SameFile(now, was) {
		if at, err := t.file.Seek(0, io.SeekCurrent); err == nil && was.Size() < at {
			t.rewind()
		}
		return
	}
	next, err := openOutput(t.path)
	if err != nil {
		return
	}
	t.read(buffer) // what came last
	_ = t.file.Close()
	t.file, t.lines = next, lines{}
	t.read(buffer)
}

func (t *tail) rewind() {
	if _, err := t.file.Seek(0, io.SeekStart); err == nil {
		t.lines = lines{}
	}
}

// addLine takes the mark in a line, if there is one.
func (m *marker) addLine(line []byte) {
	if text, ok := markOf(line); ok {
		m.add(text, time.Now())
	}
}

// followInput takes the marks in what comes through a pipe or a terminal until it ends.
func (m *marker) followInput(input *os.File) error {
	info, err := input.Stat()
	if err != nil {
		return fmt.Errorf("follow marks in standard input: %w", err)
	}
	if info.Mode().IsRegular() {
		return errors.New("follow marks in standard input: it is a file, whose lines have no times (name it: --marks FILE)")
	}
	m.running.Go(func() { m.readInput(input) })
	return nil
}

// readInput waits for input without being caught in a read when the trace ends.
func (m *marker) readInput(input *os.File) {
	var lines lines
	buffer := make([]byte, maxLine)
	for m.ctx.Err() == nil {
		waiting := []unix.PollFd{{Fd: int32(input.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(waiting, int(lookForMarks.Milliseconds())); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		}
		n, err := unix.Read(int(input.Fd()), buffer)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
		case err != nil || n == 0:
			lines.feed([]byte("\n"), m.addLine)
			return
		default:
			lines.feed(buffer[:n], m.addLine)
		}
	}
}
