package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var markLines = []struct{ line, want string }{
	{"allocscope: epoch 1", "epoch 1"},
	{"2026-01-01 10:00:00,123 INFO [rank 0] allocscope: epoch 1", "epoch 1"},
	{"INFO:trainer:allocscope: validation", "validation"},
	{"\x1b[32mINFO\x1b[0m \x1b[1;31mallocscope: epoch\x1b[0m\x1b[K", "epoch"},
	{`{"message": "allocscope: epoch 2"}`, `epoch 2"}`},
	{"[allocscope: a [b]]", "a [b]]"},
	{"allocscope:   padded \t", "padded"},
	{"allocscope: one allocscope: two", "one allocscope: two"},
	{"notallocscope: x allocscope: y", "y"},
	{"größeallocscope: x", ""},
	{"./allocscope: cannot open", ""},
	{"http://allocscope:8080/", ""},
	{"allocscope:epoch", ""},
	{"allocscope: ", ""},
	{"allocscope", ""},
	{"Allocscope: epoch", ""},
	{"", ""},
	{"allocscope: a\x00b\x1bc\x7f\xff\u202ed", "a?b?c???d"},
	{"allocscope: " + strings.Repeat("x", 300), strings.Repeat("x", 200)},
	{"allocscope: " + strings.Repeat("ß", 101), strings.Repeat("ß", 100)},
	{"allocscope: x" + strings.Repeat("ß", 101), "x" + strings.Repeat("ß", 99)},
}

func TestAMarkIsWhatFollowsTheSignInALine(t *testing.T) {
	for _, c := range markLines {
		if got, ok := markOf([]byte(c.line)); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, %t; want %q", c.line, got, ok, c.want)
		}
	}
}

// linesOf cuts data that comes in pieces of that size.
func linesOf(data []byte, size int) (found []string) {
	var l lines
	for piece := range slices.Chunk(data, size) {
		l.feed(piece, func(line []byte) { found = append(found, string(line)) })
	}
	return found
}

func TestLinesEndAtLineFeedsAndCarriageReturns(t *testing.T) {
	const data = "one\n\ntwo\r\n 10%\r 20%\rthree\nunfinished"
	want := []string{"one", "", "two", "", " 10%", " 20%", "three"}
	for size := 1; size <= len(data); size++ {
		if got := linesOf([]byte(data), size); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: %q", size, got)
		}
	}
}

func TestOfALongLineTheBeginningIsKept(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), maxLine)
	got := linesOf(append(append(long, '\n'), "short\n"...), 1000)
	if len(got) != 2 || got[0] != string(long[:maxLine]) || got[1] != "short" {
		t.Errorf("%d lines, the first of %d bytes", len(got), len(got[0]))
	}
}

// Whatever a program prints: a mark is one printable line of bounded length, reading it again gives the same, no sign means
// no mark, and how the output came in pieces makes no difference.
func FuzzMarkLine(f *testing.F) {
	for i, c := range markLines {
		f.Add([]byte(c.line), uint16(i))
	}
	f.Add([]byte("a\rallocscope: b\n\n"), uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		text, ok := markOf(data)
		if ok != (text != "") || len(text) > maxMark || !utf8.ValidString(text) || strings.ContainsFunc(text, isUnprintable) {
			t.Errorf("%q: mark %q, %t", data, text, ok)
		}
		if ok && !bytes.Contains(data, []byte("allocscope: ")) {
			t.Errorf("%q has no sign, and gives the mark %q", data, text)
		}
		if again, _ := markOf([]byte("allocscope: " + text)); again != text {
			t.Errorf("mark %q is read again as %q", text, again)
		}
		if whole, pieces := linesOf(data, len(data)+1), linesOf(data, int(size)+1); !slices.Equal(whole, pieces) {
			t.Errorf("%q: lines %q, in pieces of %d bytes %q", data, whole, int(size)+1, pieces)
		}
	})
}

func isUnprintable(r rune) bool { return !strconv.IsPrint(r) }
