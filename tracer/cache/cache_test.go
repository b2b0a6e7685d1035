package cache

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

var must = tracertest.NoError

const limit = 1 << 20

// openFolder opens a folder without regard to how much room is left elsewhere.
func openFolder(t testing.TB, path string) *Folder {
	t.Helper()
	f := Open(path, limit)
	if f == nil {
		t.Fatalf("%s is refused", path)
	}
	t.Cleanup(f.Close)
	f.minFree = 0
	return f
}

func newFolder(t testing.TB) (f *Folder, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cache")
	return openFolder(t, path), path
}

func mustLoad(t testing.TB, f *Folder, name string, want []byte) {
	t.Helper()
	if got := f.Load(name); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("entry %s has %d bytes, want %d", name, len(got), len(want))
	}
}

func names(t testing.TB, path string) (names []string) {
	t.Helper()
	for _, entry := range tracertest.Must(os.ReadDir(path))(t) {
		names = append(names, entry.Name())
	}
	return names
}

func TestFolder(t *testing.T) {
	f, path := newFolder(t)
	mustLoad(t, f, "a1", nil)

	content := []byte("eight bytes and more")
	f.Store("a1", content)
	mustLoad(t, f, "a1", content)
	f.Store("a1", content[:9])
	mustLoad(t, f, "a1", content[:9])
	f.Store("b2", []byte{})
	mustLoad(t, f, "b2", []byte{})
	mustLoad(t, openFolder(t, path), "a1", content[:9])

	if got := names(t, path); !slices.Equal(got, []string{"a1", "b2"}) {
		t.Errorf("the folder has %q", got)
	}
	for _, name := range []string{"", "a1"} {
		info := tracertest.Must(os.Stat(filepath.Join(path, name)))(t)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", name, info.Mode())
		}
	}

	f.Store("c3", make([]byte, limit)) // the header comes on top
	mustLoad(t, f, "c3", nil)

	var none *Folder
	none.Store("a1", content)
	mustLoad(t, none, "a1", nil)
	none.Close()
}

func TestOpenRefuses(t *testing.T) {
	tracertest.NeedsRoot(t)
	for name, prepare := range map[string]func(path string) error{
		"another user's": func(path string) error {
			must(t, os.Mkdir(path, 0o700))
			return os.Chown(path, 65534, 65534)
		},
		"readable by others": func(path string) error { return os.Mkdir(path, 0o755) },
		"writable by a group": func(path string) error {
			must(t, os.Mkdir(path, 0o700))
			return os.Chmod(path, 0o720)
		},
		"a link": func(path string) error {
			must(t, os.Mkdir(path+"-2", 0o700))
			return os.Symlink(path+"-2", path)
		},
		"a dangling link": func(path string) error { return os.Symlink(path+"-2", path) },
		"a file":          func(path string) error { return os.WriteFile(path, nil, 0o700) },
		"a FIFO":          func(path string) error { return unix.Mkfifo(path, 0o700) },
		"below a link": func(path string) error {
			must(t, os.Mkdir(filepath.Dir(path)+"-2", 0o700))
			must(t, os.Remove(filepath.Dir(path)))
			return os.Symlink(filepath.Dir(path)+"-2", filepath.Dir(path))
		},
		"below nothing": func(path string) error { return os.Remove(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			parent := filepath.Join(t.TempDir(), "parent")
			must(t, os.Mkdir(parent, 0o700))
			path := filepath.Join(parent, "cache")
			must(t, prepare(path))
			if f := Open(path, limit); f != nil {
				f.Close()
				t.Error("it is opened")
			}
			if strings.Contains(name, "link") {
				if _, err := os.Stat(filepath.Join(parent+"-2", "cache")); err == nil {
					t.Error("a folder was made behind a link")
				}
			}
		})
	}
}

// Whatever happened to a file, its entry is whole or missing.
func TestLoadRefuses(t *testing.T) {
	tracertest.NeedsRoot(t)
	content := bytes.Repeat([]byte("contents"), 600)
	whole := headerBytes + len(content)

	for name, change := range map[string]func(path string) error{
		"first byte":   func(path string) error { return flip(path, 0) },
		"zeros":        func(path string) error { return flip(path, 7) },
		"contents":     func(path string) error { return flip(path, headerBytes) },
		"last byte":    func(path string) error { return flip(path, int64(whole-1)) },
		"empty":        func(path string) error { return os.Truncate(path, 0) },
		"header alone": func(path string) error { return os.Truncate(path, headerBytes) },
		"one short":    func(path string) error { return os.Truncate(path, int64(whole-1)) },
		"one more":     func(path string) error { return os.Truncate(path, int64(whole+1)) },
		"enormous":     func(path string) error { return os.Truncate(path, 1<<40) },

		"another user's":     func(path string) error { return os.Chown(path, 65534, 0) },
		"readable by others": func(path string) error { return os.Chmod(path, 0o644) },
		"writable by others": func(path string) error { return os.Chmod(path, 0o602) },
		"a link": func(path string) error {
			must(t, os.Rename(path, path+"-2"))
			return os.Symlink(path+"-2", path)
		},
		"a FIFO": func(path string) error {
			must(t, os.Remove(path))
			return unix.Mkfifo(path, 0o600)
		},
		"a folder": func(path string) error {
			must(t, os.Remove(path))
			return os.Mkdir(path, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, path := newFolder(t)
			f.Store("a1", content)
			mustLoad(t, f, "a1", content)
			must(t, change(filepath.Join(path, "a1")))
			mustLoad(t, f, "a1", nil)

			if name != "a folder" {
				f.Store("a1", content)
				mustLoad(t, f, "a1", content)
			}
		})
	}
}

// flip changes a byte of a file.
func flip(path string, at int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()

	var one [1]byte
	if _, err := file.ReadAt(one[:], at); err != nil {
		return err
	}
	one[0] ^= 0x10
	_, err = file.WriteAt(one[:], at)
	return err
}

// Entries that were not used for longest make room, and nothing that the cache has not made.
func TestMakeRoom(t *testing.T) {
	f, path := newFolder(t)
	must(t, os.WriteFile(filepath.Join(path, "notes.txt"), make([]byte, 2*limit), 0o600))
	must(t, os.Mkdir(filepath.Join(path, "f00"), 0o700))

	const size, count = 64 << 10, 14 // 68 KiB on disk, 15 in the limit
	at := func(name string, used time.Time) {
		must(t, os.Chtimes(filepath.Join(path, name), used, used))
	}
	for i := range count {
		name := fmt.Sprintf("%02x", i)
		f.Store(name, make([]byte, size))
		at(name, time.Unix(int64(1000+i), 0))
	}
	must(t, os.WriteFile(filepath.Join(path, "new-00"), make([]byte, size), 0o600))
	at("new-00", time.Unix(500, 0)) // a process was killed as it wrote

	mustLoad(t, f, "00", make([]byte, size)) // now it is the last that was used
	other := openFolder(t, path)             // counts the files that are there
	for i := range 2 {
		other.Store(fmt.Sprintf("b%d", i), make([]byte, size))
	}

	left := names(t, path)
	want := []string{
		"00", "03", "04", "05", "06", "07", "08", "09", "0a", "0b", "0c", "0d", "b0", "b1",
		"f00", "notes.txt",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// onTmpfs mounts a small file system.
func onTmpfs(t *testing.T, size string) (path string) {
	t.Helper()
	tracertest.NeedsRoot(t)
	path = t.TempDir()
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "mode=0700,size="+size))
	t.Cleanup(func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) })
	return path
}

func TestFullDisk(t *testing.T) {
	disk := onTmpfs(t, "256k")
	path := filepath.Join(disk, "cache")
	f := openFolder(t, path)
	f.Store("a1", make([]byte, 100<<10))
	f.Store("b2", make([]byte, 200<<10))
	mustLoad(t, f, "a1", make([]byte, 100<<10))
	mustLoad(t, f, "b2", nil)
	if got := names(t, path); !slices.Equal(got, []string{"a1"}) {
		t.Errorf("the folder has %q", got)
	}

	t.Run("room for others", func(t *testing.T) {
		f := Open(path, limit) // wants a GiB free
		defer f.Close()
		f.Store("c3", make([]byte, 100))
		mustLoad(t, f, "c3", nil)
		mustLoad(t, f, "a1", make([]byte, 100<<10))
	})
}

func TestReadOnly(t *testing.T) {
	disk := onTmpfs(t, "1m")
	path := filepath.Join(disk, "cache")
	openFolder(t, path).Store("a1", []byte("one"))
	must(t, os.Chtimes(filepath.Join(path, "a1"), time.Unix(1, 0), time.Unix(1, 0)))
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))

	f := openFolder(t, path)
	mustLoad(t, f, "a1", []byte("one"))
	f.Store("b2", []byte("two"))
	mustLoad(t, f, "b2", nil)
	if f := Open(filepath.Join(disk, "other"), limit); f != nil {
		t.Error("a folder was made")
	}
}

// writerFolder has the folder for a test program that writes.
const writerFolder = "CACHE_TEST_FOLDER"

// Processes that write the same entries see them whole.
func TestProcesses(t *testing.T) {
	if path := os.Getenv(writerFolder); path != "" {
		f := openFolder(t, path)
		for i := range 400 {
			f.Store(fmt.Sprint(i%8), bytes.Repeat([]byte{byte(i)}, 1+i*200%150_000))
		}
		return
	}

	path := filepath.Join(t.TempDir(), "cache")
	f := openFolder(t, path)
	var writers []*exec.Cmd
	for range 2 {
		writer := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		writer.Env = append(os.Environ(), writerFolder+"="+path)
		must(t, writer.Start())
		writers = append(writers, writer)
	}
	done := make(chan error)
	go func() {
		for _, writer := range writers {
			done <- writer.Wait()
		}
	}()

	loaded := 0
	for left := len(writers); left > 0; {
		select {
		case err := <-done:
			must(t, err)
			left--
		default:
		}
		for i := range 8 {
			content := f.Load(fmt.Sprint(i))
			if len(content) == 0 {
				continue
			}
			loaded++
			if n := bytes.Count(content, content[:1]); n != len(content) {
				t.Fatalf("%d of %d bytes are of one writer", n, len(content))
			}
		}
	}
	if loaded == 0 {
		t.Error("nothing was loaded")
	}
	for _, name := range names(t, path) {
		if strings.HasPrefix(name, "new-") {
			t.Errorf("%s is left", name)
		}
	}
}
