package console

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"github.com/allocscope/allocscope/export/words"
)

// IsTerminal reports whether a writer is a terminal.
func IsTerminal(out io.Writer) bool { return terminalOf(out) != nil }

// terminalOf returns the terminal that a writer is; nil: it is none.
func terminalOf(out io.Writer) *os.File {
	if c, ok := out.(*Console); ok {
		return c.terminal
	}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return file
	}
	return nil
}

// Width is the number of columns of a terminal. Any other file has as many as a result.
func Width(out io.Writer) int {
	terminal := terminalOf(out)
	if terminal == nil {
		return words.ResultWidth
	}
	width, _, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width <= 0 {
		return words.ResultWidth
	}
	return max(width, words.MinWidth)
}

// Wrapped returns a writer of text whose lines a terminal would break within words: it breaks them
// between words. Any other file gets the text as it is.
func Wrapped(out io.Writer) io.Writer {
	if !IsTerminal(out) {
		return out
	}
	return &wrapper{out: out, width: Width(out)}
}

// wrapper implements io.Writer.
type wrapper struct {
	out   io.Writer
	width int
	line  []byte // that has begun
}

// Write implements io.Writer.
func (w *wrapper) Write(text []byte) (int, error) {
	w.line = append(w.line, text...)
	for {
		line, rest, ok := bytes.Cut(w.line, []byte("\n"))
		if !ok {
			return len(text), nil
		}
		rows := wrap(string(line), w.width)
		w.line = rest
		if _, err := io.WriteString(w.out, strings.Join(rows, "\n")+"\n"); err != nil {
			return 0, err
		}
	}
}

// wrap breaks a line between words. Further rows begin below the last column of a table in the
// first half of the line, or else two columns behind the beginning of the line.
func wrap(line string, width int) (rows []string) {
	if ansi.StringWidth(line) <= width {
		return []string{line}
	}

	text := strings.TrimLeft(line, " ")
	indent := len(line) - len(text) + 2
	if at := strings.LastIndex(line[:min(len(line), width/2)], "  "); at >= indent {
		indent = at + len("  ")
	}
	indent = min(indent, width/2)

	row := ""
	for i, word := range strings.Split(line, " ") {
		switch {
		case i == 0:
			row = word
		case ansi.StringWidth(row)+1+ansi.StringWidth(word) <= width || strings.TrimSpace(row) == "":
			row += " " + word
		default:
			rows, row = append(rows, strings.TrimRight(row, " ")), strings.Repeat(" ", indent)+word
		}
	}
	return append(rows, row)
}
