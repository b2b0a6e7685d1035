package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestRAMFiles has the sizes of files that it writes into a tmpfs of its own.
func TestRAMFiles(t *testing.T) {
	p := tracertest.Must(Open(os.Getpid()))(t)
	defer p.Close()
	folder := t.TempDir()
	tracertest.NoError(t, unix.Mount("tmpfs", folder, "tmpfs", 0, "size=64m"))
	defer unix.Unmount(folder, unix.MNT_DETACH)
	write := func(name string, mebibytes int) {
		path := filepath.Join(folder, name)
		tracertest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		tracertest.NoError(t, os.WriteFile(path, make([]byte, mebibytes<<20), 0o600))
	}

	write("old", 1)
	info := tracertest.Must(os.Stat(filepath.Join(folder, "old")))(t)
	before := p.RAMFileSystems()
	for !before.at.After(info.ModTime()) {
		before = p.RAMFileSystems()
	}
	write("new", 3)
	write("below/new", 5)
	tracertest.NoError(t, os.Symlink("/dev/shm/nowhere", filepath.Join(folder, "link")))

	for _, f := range p.RAMFilesSince(before) {
		if f.Path != folder {
			continue
		}
		want := growth.RAMFiles{
			Path: folder, Growth: 8 << 20, Left: 55 << 20, New: 2, NewBytes: 8 << 20,
			Largest: filepath.Join(folder, "below/new"),
		}
		if f != want {
			t.Errorf("%+v, want %+v", f, want)
		}
		return
	}
	t.Error("the tmpfs has not grown")
}

func TestRAMMountsAreBounded(t *testing.T) {
	text := "22 28 0:20 / /dev/shm rw shared:3 - tmpfs tmpfs rw\n" +
		"23 28 0:21 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw\n" +
		"24 28 0:21 /x /bound rw - tmpfs tmpfs rw\n" +
		"25 28 0:22 / /with\\040space rw - tmpfs tmpfs rw\n" +
		"26 28 8:1 / /home rw - ext4 /dev/sda1 rw\n27 28 broken - tmpfs tmpfs rw\n"
	want := []string{"/dev/shm", "/bound", "/with space"}
	if got := parseRAMMounts([]byte(text)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range 10 * maxRAMMounts {
		text += fmt.Sprintf("%d 28 0:%d / /m%d rw - tmpfs tmpfs rw\n", 100+i, 100+i, i)
	}
	if n := len(parseRAMMounts([]byte(text))); n != maxRAMMounts {
		t.Errorf("%d mounts are scanned", n)
	}
}
