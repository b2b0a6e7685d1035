package mark

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestFollow(t *testing.T) {
	t.Run("file", testFile)
	t.Run("replaced file", testReplacedFile)
	t.Run("file of another user", testFileOfOther)
	t.Run("file that does not answer", testStalledFile)
	t.Run("FIFO", testFIFO)
	t.Run("silent writers", testSilentWriters)
	t.Run("standard input", testInput)
	t.Run("errors", testFollowErrors)
}

func TestLineSplitter(t *testing.T) {
	t.Run("ends of lines", testLineEnds)
	t.Run("long line", testLongLine)
}

func testFile(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "log"), time.Now()
	appendTo(t, path, "allocscope: old\n")
	must(t, m.Follow(path))

	appendTo(t, path, "loss 0.3\nINFO allocscope: ep")
	appendTo(t, path, "och 1\nallocscope: epoch 2\nallocscope: unfinished")
	mustMark(t, m, began, "epoch 1", "epoch 2")
	appendTo(t, path, " no more\n")
	mustMark(t, m, began, "unfinished no more")
}

// A file of memory is read as a file of another machine: by the child process, which may hang.
func testStalledFile(t *testing.T) {
	dir := tracertest.Must(os.MkdirTemp("/dev/shm", "allocscope-mark-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	m, path, began := startMarker(t), filepath.Join(dir, "log"), time.Now()
	appendTo(t, path, "")
	must(t, m.Follow(path))
	appendTo(t, path, "allocscope: before\n")
	mustMark(t, m, began, "before")

	tables := tracertest.Must(filepath.Glob("/proc/self/task/*/children"))(t)

	var readers []int
	for _, table := range tables {
		children, _ := os.ReadFile(table) // of a thread that may have ended
		for _, text := range strings.Fields(string(children)) {
			command, _ := os.ReadFile("/proc/" + text + "/cmdline")
			pid, err := strconv.Atoi(text)
			if err == nil && string(command) == hostile.Name+"\x00" {
				readers = append(readers, pid)
			}
		}
	}

	if len(readers) == 0 {
		t.Fatal("there is no reader")
	}

	signal := func(what unix.Signal) {
		for _, pid := range readers {
			if err := unix.Kill(pid, what); err != nil {
				t.Error(err)
			}
		}
	}

	signal(unix.SIGSTOP)
	defer signal(unix.SIGCONT)
	appendTo(t, path, "allocscope: meanwhile\n")
	time.Sleep(2 * pollPeriod)
	if marks := m.Drain(); len(marks) != 0 {
		t.Fatalf("it is read by allocscope itself: %v", marks)
	}
	signal(unix.SIGCONT)
	mustMark(t, m, began, "meanwhile")
}

func testReplacedFile(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "log"), time.Now()
	appendTo(t, path, "")
	must(t, m.Follow(path))

	appendTo(t, path, "allocscope: first\nallocscope: half a li")
	mustMark(t, m, began, "first")
	must(t, os.Rename(path, path+".1"))

	appendTo(t, path+".1", "ne\n")
	mustMark(t, m, began, "half a line")
	appendTo(t, path, "allocscope: replaced\nallocscope: lost")
	mustMark(t, m, began, "replaced")
	must(t, os.Truncate(path, 0))

	appendTo(t, path, "allocscope: cut\n")
	mustMark(t, m, began, "cut")
}

// Who may write the folder of a log may not have root read another user's files with it.
func testFileOfOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root (run the tests as root)")
	}
	m, folder, began := startMarker(t), t.TempDir(), time.Now()
	path, private := filepath.Join(folder, "log"), filepath.Join(folder, "private")
	appendTo(t, path, "")
	must(t, os.Chown(path, nobody, nobody))
	must(t, m.Follow(path))

	appendTo(t, private, "allocscope: private\n")
	must(t, os.Rename(path, path+".1"))
	must(t, os.Symlink(private, path))
	time.Sleep(3 * pollPeriod)

	next := filepath.Join(folder, "next")
	appendTo(t, next, "allocscope: own\n")
	must(t, os.Chown(next, nobody, nobody))
	must(t, os.Rename(next, path))
	mustMark(t, m, began, "own")
}

// A FIFO has no writer when the trace starts, one, none again, and another one.
func testFIFO(t *testing.T) {
	m, path, began := startMarker(t), filepath.Join(t.TempDir(), "fifo"), time.Now()
	must(t, unix.Mkfifo(path, 0o600))

	must(t, m.Follow(path))

	for _, text := range []string{"one", "two"} {
		writer := tracertest.Must(os.OpenFile(path, os.O_WRONLY, 0))(t)

		for range 2 {
			if _, err := writer.WriteString("allocscope: " + text + "\n"); err != nil {
				t.Fatal(err)
			}
			mustMark(t, m, began, text)
		}

		must(t, writer.Close())
	}
}

func testSilentWriters(t *testing.T) {
	m, path, began := NewReceiver(), filepath.Join(t.TempDir(), "fifo"), time.Now()
	must(t, unix.Mkfifo(path, 0o600))

	must(t, m.Follow(path))

	fifo := tracertest.Must(os.OpenFile(path, os.O_WRONLY, 0))(t)

	reader, input := pipe(t)
	must(t, m.followInput(reader))

	for _, writer := range []*os.File{fifo, input} {
		defer writer.Close()
		if _, err := writer.WriteString("allocscope: that is all\n"); err != nil {
			t.Fatal(err)
		}
		mustMark(t, m, began, "that is all")
	}

	mustReturn(t, m.Close)
}

// mustReturn checks for a call to end in good time.
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
	must(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	reader, writer = os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
	t.Cleanup(func() { reader.Close() })
	return reader, writer
}

func testInput(t *testing.T) {
	m, began := startMarker(t), time.Now()
	reader, writer := pipe(t)
	must(t, m.followInput(reader))

	for _, text := range []string{
		"x\nallocscope: one\nallocsc",
		"ope: two\nallocscope: without an end",
	} {
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}

	mustMark(t, m, began, "one", "two")
	writer.Close()
	mustMark(t, m, began, "without an end")
}

func testFollowErrors(t *testing.T) {
	m, dir := startMarker(t), t.TempDir()
	for path, words := range map[string]string{
		filepath.Join(dir, "missing"): "make it first",
		dir:                           "neither a file nor a FIFO",
		"/dev/zero":                   "/dev/zero: neither a file nor a FIFO",
	} {
		if err := m.Follow(path); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v does not say %q", path, err, words)
		}
	}

	appendTo(t, filepath.Join(dir, "log"), "allocscope: old\n")
	file := tracertest.Must(os.Open(filepath.Join(dir, "log")))(t)
	defer file.Close()
	if err := m.followInput(file); err == nil || !strings.Contains(err.Error(), "--marks FILE") {
		t.Errorf("a file as standard input: %v", err)
	}
}

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

func TestParseLine(t *testing.T) {
	for _, c := range markLines {
		if got, ok := parseLine([]byte(c.line)); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, %t; want %q", c.line, got, ok, c.want)
		}
	}
}

// linesOf cuts data that comes in pieces of that size.
func linesOf(data []byte, size int) (found []string) {
	var l lineSplitter
	for piece := range slices.Chunk(data, size) {
		l.feed(piece, func(line []byte) { found = append(found, string(line)) })
	}
	return found
}

func testLineEnds(t *testing.T) {
	const data = "one\n\ntwo\r\n 10%\r 20%\rthree\nunfinished"
	want := []string{"one", "", "two", "", " 10%", " 20%", "three"}
	for size := 1; size <= len(data); size++ {
		if got := linesOf([]byte(data), size); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d bytes: %q", size, got)
		}
	}
}

func testLongLine(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), maxLineBytes)
	got := linesOf(append(append(long, '\n'), "short\n"...), 1000)
	if len(got) != 2 || got[0] != string(long[:maxLineBytes]) || got[1] != "short" {
		t.Errorf("%d lines, the first of %d bytes", len(got), len(got[0]))
	}
}

// Whatever a program prints: a mark is one printable line of bounded length, reading it again
// returns the same, no sign means no mark, and how the output came in pieces makes no difference.
func FuzzMarkLine(f *testing.F) {
	for i, c := range markLines {
		f.Add([]byte(c.line), uint16(i))
	}

	f.Add([]byte("a\rallocscope: b\n\n"), uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, size uint16) {
		text, ok := parseLine(data)
		if ok != (text != "") || len(text) > record.MaxMarkBytes || !utf8.ValidString(text) ||
			strings.ContainsFunc(text, isUnprintable) {
			t.Errorf("%q: mark %q, %t", data, text, ok)
		}

		if ok && !bytes.Contains(data, []byte("allocscope: ")) {
			t.Errorf("%q has no sign, and returns the mark %q", data, text)
		}

		if again, _ := parseLine([]byte("allocscope: " + text)); again != text {
			t.Errorf("mark %q is read again as %q", text, again)
		}
		if whole, pieces := linesOf(data, len(data)+1), linesOf(data, int(size)+
			1); !slices.Equal(whole, pieces) {
			t.Errorf("%q: lines %q, in pieces of %d bytes %q", data, whole, int(size)+1, pieces)
		}
	})
}

func isUnprintable(r rune) bool { return !strconv.IsPrint(r) }
