package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// readStatus is a line of /proc/PID/status, in the kernel's words.
func readStatus(pid int, name string) (string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("/proc/%d/status has no %s", pid, name)
}

func statusOf(t *testing.T, pid int, name string) string {
	t.Helper()
	value, err := readStatus(pid, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// readRSS is the resident memory of a process in bytes.
func readRSS(pid int) (int64, error) {
	text, err := readStatus(pid, "VmRSS")
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	return kib << 10, err
}

func rssOf(t *testing.T, pid int) int64 {
	t.Helper()
	rss, err := readRSS(pid)
	if err != nil {
		t.Fatal(err)
	}
	return rss
}

// awaitState waits until a process is in a state as ps names it.
func awaitState(t *testing.T, pid int, state string) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is in state %s", pid, state), func() bool {
		return strings.HasPrefix(statusOf(t, pid, "State"), state)
	})
}

// A patch is a byte of code that is not what its file holds.
type patch struct {
	path   string
	offset int64 // in the file
	is     byte
}

// patches compares the code of a process with the files that it was mapped from.
func patches(t *testing.T, pid int) []patch {
	t.Helper()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	var found []patch
	compared := 0
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end, offset int64
		var permissions, device, path string
		var inode uint64
		n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d %s", &start, &end, &permissions, &offset, &device, &inode, &path)
		if n < 7 || inode == 0 || permissions[2] != 'x' {
			continue
		}
		found = append(found, comparePatches(t, pid, path, start, end, offset)...)
		compared++
	}
	if compared < 3 { // the program, the C library, the dynamic linker
		t.Fatalf("process %d maps only %d files with code", pid, compared)
	}
	return found
}

func comparePatches(t *testing.T, pid int, path string, start, end, offset int64) []patch {
	t.Helper()
	file, memory := make([]byte, end-start), make([]byte, end-start)
	readAt(t, path, file, offset)
	readAt(t, fmt.Sprintf("/proc/%d/mem", pid), memory, start)
	if bytes.Equal(file, memory) {
		return nil
	}
	var found []patch
	for i := range file {
		if file[i] != memory[i] {
			found = append(found, patch{path, offset + int64(i), memory[i]})
		}
	}
	return found
}

// readAt fills data; what lies behind the end of the file is zero, as in a mapping of it.
func readAt(t *testing.T, path string, data []byte, offset int64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if n, err := file.ReadAt(data, offset); n == 0 {
		t.Fatalf("read %s at %#x: %v", path, offset, err)
	}
}

// isPatched reports whether there is a breakpoint among the first bytes of an exported function of a file.
func isPatched(t *testing.T, found []patch, path, function string) bool {
	t.Helper()
	const breakpoint, prologue = 0xcc, 64
	at := fileOffset(t, path, function)
	for _, p := range found {
		if p.path == path && p.is == breakpoint && p.offset >= at && p.offset < at+prologue {
			return true
		}
	}
	return false
}

func fileOffset(t *testing.T, path, function string) int64 {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		for _, p := range file.Progs {
			if s.Name == function && p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value-p.Vaddr < p.Filesz {
				return int64(s.Value - p.Vaddr + p.Off)
			}
		}
	}
	t.Fatalf("%s has no function %s", path, function)
	return 0
}

// libcOf is the path of the C library that a process maps.
func libcOf(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) == 6 && strings.Contains(fields[5], "/libc.so.6") {
			return fields[5]
		}
	}
	t.Fatalf("process %d maps no libc.so.6", pid)
	return ""
}
