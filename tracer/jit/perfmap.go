package jit

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A listing is how far a file has been read. A runtime appends to its file, or writes it again.
type listing struct {
	device, inode uint64
	offset        int64
	last          []byte // the bytes before the offset
}

// lastBytes is how many bytes before the offset show whether a file is still the same.
const lastBytes = 64

// chunkBytes is read at once.
const chunkBytes = 1 << 20

// resume finds where to go on in a file, which has grown or is another one. since is for the
// functions that are read now.
func (l *listing) resume(f *hostile.File, check int) (since int) {
	if l.device == f.Device && l.inode == f.Inode && l.offset > 0 && f.Size() >= l.offset {
		before := make([]byte, len(l.last))
		_, err := f.ReadAt(before, l.offset-int64(len(before)))
		if err == nil && bytes.Equal(before, l.last) {
			return check
		}
	}

	*l = listing{device: f.Device, inode: f.Inode}
	return 0
}

// advance notes that the text up to its end has been used.
func (l *listing) advance(used []byte) {
	l.offset += int64(len(used))
	l.last = append(l.last, used[max(0, len(used)-lastBytes):]...)
	l.last = bytes.Clone(l.last[max(0, len(l.last)-lastBytes):])
}

// checkPerfMap reads the lines that the perf map has more than before. The format is
// https://docs.kernel.org (tools/perf/Documentation/jit-interface.txt): START SIZE NAME.
func (n *Names) checkPerfMap() {
	if n.perfMap == nil {
		return
	}
	file, err := n.perfMap.Open()
	if err != nil {
		return
	}
	defer file.Close()

	n.readPerfMap(file)
}

func (n *Names) readPerfMap(file *hostile.File) {
	l := &n.listing
	since := l.resume(file, n.checks)
	buffer := make([]byte, min(chunkBytes, max(0, file.Size()-l.offset)))
	for l.offset < file.Size() && !n.isFull() {
		want := min(int64(len(buffer)), file.Size()-l.offset)
		read, _ := file.ReadAt(buffer[:want], l.offset)
		used := n.addLines(buffer[:read], since)
		if used == 0 {
			return
		}

		n.read += int64(used)
		l.advance(buffer[:used])
	}
}

// addLines adds the functions of the whole lines of a piece, and returns how much of it is used.
func (n *Names) addLines(piece []byte, since int) (used int) {
	end := bytes.LastIndexByte(piece, '\n') + 1 // the runtime may be writing the rest
	for text := range bytes.Lines(piece[:end]) {
		if f, ok := parseLine(text); ok {
			f.check, f.since = n.checks, since
			n.add(f)
		}
	}
	if end == 0 && len(piece) == chunkBytes {
		return len(piece) // no line is that long
	}
	return end
}

// parseLine reads a line of a perf map.
func parseLine(text []byte) (f function, ok bool) {
	start, rest, _ := strings.Cut(strings.TrimSpace(string(text[:min(len(text), 4096)])), " ")
	size, name, ok := strings.Cut(rest, " ")
	if !ok {
		return f, false
	}

	first, err := strconv.ParseUint(strings.TrimPrefix(start, "0x"), 16, 64)
	length, err2 := strconv.ParseUint(strings.TrimPrefix(size, "0x"), 16, 64)
	if err != nil || err2 != nil {
		return f, false
	}

	return function{start: first, end: first + length, name: printable(name)}, true
}

// printable is a name that a runtime has given, of characters that a terminal may get.
func printable(name string) string {
	return strings.Clone(growth.Truncate(growth.Printable(strings.TrimSpace(name)), maxNameBytes))
}

var (
	// nameOfV8 is the kind of code, a mark of its tier, the function, and where it begins: the text
	// of LogEventsAndTags and CodeEventLogger::NameBuffer in V8's src/logging/log.cc.
	nameOfV8 = regexp.MustCompile(`^(JS|Eval|Script|Function|LazyCompile|Callback):[~^*+']*(.*?) ?` +
		`((?:file://)?/.*|node:[^ ]*|[^ ]*):(\d+):(\d+)$`)
	// nameOfPython is what CPython writes of a trampoline (Python/perf_trampoline.c).
	nameOfPython = regexp.MustCompile(`^py::(.*):([^:]*)$`)
	// nameOfJava is a method by a JVM (int com.example.Cache.size()), and agentName by the agent
	// perf-map-agent (Lcom/example/Cache;::size).
	nameOfJava = regexp.MustCompile(`^[\w.$\[\]]+ ((?:[\w$]+\.)+[\w$<>]+)\([^()]*\)$`)
	agentName  = regexp.MustCompile(`^L([\w/$]+);::([^ (]+)`)
)

// parseName takes apart the name that a runtime has given to its code.
func parseName(name string) Function {
	if m := nameOfV8.FindStringSubmatch(name); m != nil {
		f := Function{Name: m[2], File: strings.TrimPrefix(m[3], "file://")}
		f.StartLine, _ = strconv.Atoi(m[4])
		if f.Name == "" {
			f.Name = "<anonymous:" + m[4] + ">"
		}
		return f
	}

	if m := nameOfPython.FindStringSubmatch(name); m != nil {
		return Function{Name: m[1], File: m[2], IsTrampoline: true}
	}

	if m := nameOfJava.FindStringSubmatch(name); m != nil {
		return Function{Name: m[1]}
	}
	if m := agentName.FindStringSubmatch(name); m != nil {
		return Function{Name: strings.ReplaceAll(m[1], "/", ".") + "." + m[2]}
	}
	return Function{Name: name}
}
