package main

import (
	"bytes"
	"regexp"
	"unicode"
	"unicode/utf8"
)

const maxLine = 64 << 10 // bytes of a line that are looked at

// lines cuts what is read in pieces into lines. A carriage return ends one, too: progress bars write nothing else for hours.
type lines struct {
	partial []byte // at most maxLine bytes of the line that has not ended
}

// feed visits the lines that end in a piece; each is valid during the visit only.
func (l *lines) feed(piece []byte, visit func(line []byte)) {
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

func (l *lines) keep(piece []byte) {
	l.partial = append(l.partial, piece[:min(len(piece), maxLine-len(l.partial))]...)
}

// markSign is what a mark in a line of output begins with.
var markSign = []byte("allocscope: ")

// Colours and the like, which loggers put around words (ECMA-48, control sequences).
var terminalControl = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]`)

// markOf gives the mark in a line: what follows the first "allocscope: " at its start or behind anything but a word or path.
func markOf(line []byte) (text string, ok bool) {
	if !bytes.Contains(line, markSign) {
		return "", false
	}
	rest := terminalControl.ReplaceAll(line, nil)
	for before := []byte(nil); ; {
		at := bytes.Index(rest, markSign)
		if at < 0 {
			return "", false
		}
		before, rest = rest[:at], rest[at+len(markSign):]
		if !endsInWord(before) {
			text = markText(string(rest))
			return text, text != ""
		}
	}
}

func endsInWord(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return len(text) > 0 && (unicode.IsLetter(r) || unicode.IsDigit(r) || bytes.ContainsRune([]byte("_-./"), r))
}
