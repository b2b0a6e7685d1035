package hostile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A path that leads now to a file and now to a FIFO never has the FIFO opened: another reader of
// the FIFO's folder sees no open of it.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	tracertest.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	tracertest.NoError(t, unix.Mkfifo(fifo, 0o600))
	watch := tracertest.Must(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))(t)
	defer unix.Close(watch)
	tracertest.Must(unix.InotifyAddWatch(watch, fifo, unix.IN_OPEN))(t)

	path, stop := filepath.Join(dir, "path"), make(chan struct{})
	flipped := make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				flipped <- n
				return
			default:
			}
			next := filepath.Join(dir, "next")
			_ = os.Symlink([]string{file, fifo}[n%2], next)
			_ = os.Rename(next, path)
		}
	}()

	opened, refused := 0, 0
	for opened < 2000 || refused < 2000 {
		f, err := Open(nil, path, 0, 0)
		switch {
		case err == nil:
			opened++
			if info, err := f.Stream().Stat(); err != nil || !info.Mode().IsRegular() {
				t.Errorf("opened %v, %v", info.Mode(), err)
			}
			f.Close()
		case errors.Is(err, ErrFileType):
			refused++
		case !errors.Is(err, fs.ErrNotExist): // before the first link
			t.Fatal(err)
		}
	}

	close(stop)
	t.Logf("%d flips, %d opened, %d refused", <-flipped, opened, refused)

	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the FIFO was opened: %d bytes of events, %v", n, err)
	}
	f, err := Open(nil, fifo, 0, unix.S_IFIFO)
	if err != nil {
		t.Fatalf("a FIFO that is allowed: %v", err)
	}
	f.Close()
}

// No link leads out of the root.
func TestOpenInRoot(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	tracertest.NoError(t, os.WriteFile(outside, []byte("x"), 0o600))
	for name, target := range map[string]string{
		"absolute": outside, "relative": "../../../../../../../../" + outside, "magic": "/proc/self/root",
	} {
		tracertest.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}

	for _, path := range []string{
		"/absolute", "relative", "../../../../../../" + outside, outside, "magic/etc/passwd",
	} {
		if f, err := OpenInRoot(root, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("OpenInRoot(%s) = %v, %v, want %v", path, f, err, fs.ErrNotExist)
		}
	}

	// /proc/self/root leads out of any root that has a /proc, unless magic links are refused.
	if f, err := OpenInRoot("/", "/proc/self/root/etc/passwd"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("OpenInRoot through a magic link = %v, %v, want %v", f, err, unix.ELOOP)
	}

	f := tracertest.Must(OpenInRoot(filepath.Dir(outside), "/outside"))(t)
	f.Close()
}
