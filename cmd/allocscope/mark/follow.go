package mark

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// pollPeriod is the time between two reads of a file, by which marks may be late.
const pollPeriod = 200 * time.Millisecond

// Follow adds the marks in the output of a program: in a file, which may grow, be truncated or be
// replaced; in a FIFO; or, for "-", in standard input. Lines that are in the file already have no
// time, and are skipped.
func (m *Receiver) Follow(path string) error {
	if path == "-" {
		return m.followInput(os.Stdin)
	}

	file, err := openOutput(path)
	if err != nil {
		return fmt.Errorf("follow marks: %w", err)
	}

	t := &tail{receiver: m, path: path, file: file, offset: file.Size()}
	m.running.Go(t.run)
	return nil
}

// openOutput opens a file or a FIFO without waiting for a writer. Each time, the owner of its folder
// decides what the path leads to.
func openOutput(path string) (*hostile.File, error) {
	file, err := hostile.Open(nil, path, 0, unix.S_IFIFO)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = fmt.Errorf("%w (make it first, or start the program that writes it)", err)
	case errors.Is(err, hostile.ErrFileType):
		err = errors.New("neither a file nor a FIFO")
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return file, nil
}

// tail is a file that is followed. It may be on another machine that does not answer any more: the
// child process reads it, and a file that does not answer is given up.
type tail struct {
	receiver *Receiver
	path     string
	file     *hostile.File
	offset   int64
	lines    lineSplitter
}

func (t *tail) run() {
	defer func() { _ = t.file.Close() }() // it was only read
	buffer := make([]byte, maxLineBytes)

	for t.receiver.ctx.Err() == nil {
		if errors.Is(t.read(buffer), hostile.ErrStalled) ||
			errors.Is(t.reopen(buffer), hostile.ErrStalled) {
			return
		}

		select {
		case <-t.receiver.ctx.Done():
		case <-time.After(pollPeriod):
		}
	}
}

// read reads to the end of the file. The error says why there is no more.
func (t *tail) read(buffer []byte) error {
	for t.receiver.ctx.Err() == nil {
		n, err := t.file.ReadAt(buffer, t.offset)
		if errors.Is(err, unix.ESPIPE) {
			pipe := t.file.Stream()
			_ = pipe.SetReadDeadline(time.Now().Add(pollPeriod)) // a FIFO has one
			n, err = pipe.Read(buffer)
		} else {
			t.offset += int64(n)
		}

		t.lines.feed(buffer[:n], t.receiver.addLine)
		if err != nil {
			return err
		}
	}

	return nil
}

// errOtherOwner means that a file has been replaced by one of another user. A program that may
// write the file's folder, such as the traced one, could make root read files that the program
// itself may not read: lines of a log, or the data in a FIFO, which its reader then loses.
var errOtherOwner = errors.New("the new file belongs to another user")

// reopen starts again at the start of the file after it was truncated, and with the new file after
// it was replaced.
func (t *tail) reopen(buffer []byte) error {
	now, err := openOutput(t.path)
	if err != nil {
		return err // between two files, perhaps
	}

	if now.Device == t.file.Device && now.Inode == t.file.Inode {
		if now.Size() < t.offset {
			t.offset, t.lines = 0, lineSplitter{}
		}
		return now.Close()
	}
	if now.Owner != t.file.Owner {
		return errors.Join(errOtherOwner, now.Close())
	}

	_ = t.read(buffer) // the last lines
	_ = t.file.Close()
	t.file, t.offset, t.lines = now, 0, lineSplitter{}
	return t.read(buffer)
}

// addLine adds the mark in a line, if there is one.
func (m *Receiver) addLine(line []byte) {
	if text, ok := parseLine(line); ok {
		m.Add(text, time.Now())
	}
}

// followInput adds the marks that come through a pipe or a terminal, until it ends.
func (m *Receiver) followInput(input *os.File) error {
	info, err := input.Stat()
	if err != nil {
		return fmt.Errorf("follow marks in standard input: %w", err)
	}

	if info.Mode().IsRegular() {
		return errors.New("follow marks in standard input: it is a file, " +
			"whose lines have no times (name it: --marks FILE)")
	}

	m.running.Go(func() { m.readInput(input) })
	return nil
}

// readInput polls before each read, so that no read blocks the end of the trace.
func (m *Receiver) readInput(input *os.File) {
	var lines lineSplitter
	buffer := make([]byte, maxLineBytes)
	for m.ctx.Err() == nil {
		waiting := []unix.PollFd{{Fd: int32(input.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(waiting, int(pollPeriod.Milliseconds())); n == 0 ||
			errors.Is(err, unix.EINTR) {
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

// maxLineBytes of a line are searched for a mark.
const maxLineBytes = 64 << 10

// lineSplitter splits output into lines. A carriage return ends one, too: progress bars write no
// line feed for hours.
type lineSplitter struct {
	partial []byte // at most maxLineBytes of the line that has not ended
}

// feed visits the lines that end in a piece. Each is valid during its visit only.
func (l *lineSplitter) feed(piece []byte, visit func(line []byte)) {
	for {
		end := bytes.IndexAny(piece, "\r\n")
		if end < 0 {
			l.keep(piece)
			return
		}

		l.keep(piece[:end])
		visit(l.partial)
		l.partial = l.partial[:0]
		piece = piece[end+1:]
	}
}

func (l *lineSplitter) keep(piece []byte) {
	l.partial = append(l.partial, piece[:min(len(piece), maxLineBytes-len(l.partial))]...)
}

// linePrefix starts a mark in a line of output.
var linePrefix = []byte("allocscope: ")

// terminalControl matches colours and the like, which loggers put around words (ECMA-48 control
// sequences).
var terminalControl = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// parseLine returns the mark in a line: the text after the first "allocscope: " that does not
// continue a word or a path.
func parseLine(line []byte) (text string, ok bool) {
	if !bytes.Contains(line, linePrefix) {
		return "", false
	}

	rest := terminalControl.ReplaceAll(line, nil)
	for before := []byte(nil); ; {
		at := bytes.Index(rest, linePrefix)
		if at < 0 {
			return "", false
		}

		before, rest = rest[:at], rest[at+len(linePrefix):]
		if !endsInWord(before) {
			text = record.MarkText(string(rest))
			return text, text != ""
		}
	}
}

func endsInWord(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return len(text) > 0 &&
		(unicode.IsLetter(r) || unicode.IsDigit(r) || bytes.ContainsRune([]byte("_-./"), r))
}
