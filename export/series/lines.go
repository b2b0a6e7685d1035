package series

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const maxLine = 64 << 10 // bytes

// lines reads a file line by line.
type lines struct {
	reader *bufio.Reader
	number int  // of the last line, from 1
	cut    bool // the last line has no newline
}

func newLines(r io.Reader) *lines { return &lines{reader: bufio.NewReaderSize(r, maxLine)} }

// head gives the first lines without reading past them, no more than maxLine bytes in all. The error says that the file is
// empty or no text.
func (l *lines) head() ([][]byte, error) {
	head, err := l.reader.Peek(maxLine)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) { // byte order mark
		if _, err := l.reader.Discard(3); err != nil {
			return nil, err
		}
		head = head[3:]
	}
	switch {
	case bytes.IndexByte(head, 0) >= 0:
		return nil, errors.New("read lines: the file is binary, not text")
	case len(bytes.TrimSpace(head)) == 0:
		return nil, errors.New("read lines: the file is empty")
	}
	first := bytes.Split(head, []byte("\n"))
	if err == nil && len(first) > 1 {
		first = first[:len(first)-1] // which may go on
	}
	for i, line := range first {
		first[i] = bytes.Clone(bytes.TrimRight(line, "\r"))
	}
	return first, nil
}

// next gives the next line without its end, until the call after. The error is io.EOF, unwrapped, after the last line.
func (l *lines) next() ([]byte, error) {
	line, err := l.reader.ReadSlice('\n')
	if errors.Is(err, io.EOF) && len(line) > 0 {
		l.cut, err = true, nil
	}
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	l.number++
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("line %d: longer than %d bytes", l.number, maxLine)
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", l.number, err)
	}
	if n := len(line); line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}
