package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAFileIsFollowedFromItsEnd(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "log"), time.Now()
	appendTo(t, path, "allocscope: old\n")
	if err := m.follow(path); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "loss 0.3\nINFO allocscope: ep")
	appendTo(t, path, "och 1\nallocscope: epoch 2\nallocscope: unfinished")
	mustMark(t, m, began, "epoch 1", "epoch 2")
	appendTo(t, path, " no more\n")
	mustMark(t, m, began, "unfinished no more")
}

func TestAFileIsFollowedWhenItIsReplacedOrCutShort(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "log"), time.Now()
	appendTo(t, path, "")
	if err := m.follow(path); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "allocscope: first\nallocscope: half a li")
	mustMark(t, m, began, "first")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".1", "ne\n")
	mustMark(t, m, began, "half a line")
	appendTo(t, path, "allocscope: replaced\nallocscope: lost")
	mustMark(t, m, began, "replaced")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "allocscope: cut\n")
	mustMark(t, m, began, "cut")
}

func TestWhatAFileGotLastBeforeItWasReplacedIsTaken(t *testing.T) {
	m, path, began, buffer := startMarker(t), filepath.Join(t.TempDir(), "log"), time.Now(), make([]byte, maxLine)
	appendTo(t, path, "")
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	followed := &tail{marker: m, path: path, file: file}
	followed.read(buffer)
	appendTo(t, path, "allocscope: last\nallocscope: torn")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path, "allocscope: new\n")
	followed.reopen(buffer)
	defer followed.file.Close()
	mustMark(t, m, began, "last", "new")
}

// A FIFO has no writer when the trace starts, one, none again, and another one.
func TestAFIFOIsFollowedFromWriterToWriter(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "fifo"), time.Now()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.follow(path); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		writer, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := writer.WriteString("allocscope: " + text + "\n"); err != nil {
				t.Fatal(err)
			}
			mustMark(t, m, began, text)
		}
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWritersThatSayNothingMoreDoNotKeepATraceFromEnding(t *testing.T) {
	m, path, began := newMarker(), filepath.Join(t.TempDir(), "fifo"), time.Now()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.follow(path); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	reader, input := pipe(t)
	if err := m.followInput(reader); err != nil {
		t.Fatal(err)
	}
	for _, writer := range []*os.File{fifo, input} {
		defer writer.Close()
		if _, err := writer.WriteString("allocscope: that is all\n"); err != nil {
			t.Fatal(err)
		}
		mustMark(t, m, began, "that is all")
	}
	mustReturn(t, m.close)
}

// mustReturn wants a call to end in good time.
func mustReturn(t *testing.T, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	select {
	case <-done:
	case <-time.After(guard):
		t.Fatal("the call does not return")
	}
}

// pipe makes one that waits in read and write, as standard input does.
func pipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	reader, writer = os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
	t.Cleanup(func() { reader.Close() })
	return reader, writer
}

func TestStandardInputIsFollowedToItsEnd(t *testing.T) {
	m, began := startMarker(t), time.Now()
	reader, writer := pipe(t)
	if err := m.followInput(reader); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"x\nallocscope: one\nallocsc", "ope: two\nallocscope: without an end"} {
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	mustMark(t, m, began, "one", "two")
	writer.Close()
	mustMark(t, m, began, "without an end")
}

func TestWhatCannotBeFollowedIsRefusedAtTheStart(t *testing.T) {
	m, dir := startMarker(t), t.TempDir()
	for path, words := range map[string][]string{
		filepath.Join(dir, "missing"): {"follow marks", "missing", "no such file", "make it first"},
		dir:                           {"neither a file nor a FIFO"},
		"/dev/zero":                   {"/dev/zero", "neither a file nor a FIFO"},
	} {
		err := m.follow(path)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", path, err, word)
			}
		}
	}
	appendTo(t, filepath.Join(dir, "log"), "allocscope: old\n")
	file, err := os.Open(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := m.followInput(file); err == nil || !strings.Contains(err.Error(), "--marks FILE") {
		t.Errorf("a file as standard input: %v", err)
	}
}
