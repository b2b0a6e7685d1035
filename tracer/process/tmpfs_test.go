package process

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestParseTmpfsMounts(t *testing.T) {
	const text = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n" +
		"23 22 0:5 / /dev rw - devtmpfs devtmpfs rw\n" +
		"24 23 0:25 / /dev/shm rw,nosuid shared:2 - tmpfs tmpfs rw,size=64k\n" +
		"25 22 0:4097 /sub /mnt/a\\040-\\040b rw master:1 - tmpfs none rw\n" +
		"26 22 x:1 / /x rw - tmpfs none rw\nshort - tmpfs\n\n"
	got := slices.Sorted(maps.Keys(parseTmpfsMounts([]byte(text))))
	want := []uint64{unix.Mkdev(0, 25), unix.Mkdev(0, 4097)}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
}

// The kernel is the oracle: statfs(2) returns the file system of a folder.
func TestMarkTmpfs(t *testing.T) {
	p := tracertest.Must(Open(os.Getpid()))(t)
	defer p.Close()

	for _, folder := range []string{"/dev/shm", t.TempDir(), "/sys/fs/cgroup", "/run"} {
		for _, flags := range []int{unix.MAP_SHARED, unix.MAP_PRIVATE} {
			checkTmpfs(t, p, folder, flags)
		}
	}
}

func checkTmpfs(t *testing.T, p *Process, folder string, flags int) {
	file, err := os.CreateTemp(folder, "allocscope")
	if err != nil {
		return // nothing can be made there
	}
	defer os.Remove(file.Name())
	defer file.Close()

	var fs unix.Statfs_t
	tracertest.NoError(t, unix.Fstatfs(int(file.Fd()), &fs))
	tracertest.NoError(t, file.Truncate(int64(os.Getpagesize())))
	memory, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, flags)
	tracertest.NoError(t, err)
	defer unix.Munmap(memory)

	maps := tracertest.Must(p.Maps())(t)
	at := slices.IndexFunc(maps, func(m Mapping) bool {
		return filepath.Base(m.Path) == filepath.Base(file.Name())
	})
	want := fs.Type == unix.TMPFS_MAGIC && flags == unix.MAP_SHARED
	if at < 0 || maps[at].Tmpfs != want {
		t.Errorf("%s, flags %d: mapping %d of %+v, want tmpfs %t", folder, flags, at, maps, want)
	}
}
