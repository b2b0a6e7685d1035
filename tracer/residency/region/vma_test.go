package region

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// lines are of /proc/PID/maps, each with the class and name it must get. Their addresses do not
// matter.
var lines = []struct {
	line  string
	class Class
	name  string
}{
	{"1000-2000 r-xp 2000 fe:00 77 /usr/lib/libc.so.6", File, "/usr/lib/libc.so.6"},
	{"1000-2000 r--s 2000 fe:00 77 /data/train.bin (deleted)", File, "/data/train.bin (deleted)"},
	{"1000-2000 rw-p 0 00:00 0 [heap]", MainHeap, "main heap"},
	{"1000-2000 rw-p 0 00:00 0 [stack]", MainStack, "[stack]"},
	{"1000-2000 r-xp 0 00:00 0 [vdso]", Kernel, "[vdso]"},
	{"1000-2000 rw-p 0 00:00 0 ", Anonymous, "anonymous"},
	{"1000-2000 rw-p 0 00:00 0 [anon:cache of rows]", Anonymous, "cache of rows"},
	{"1000-2000 rwxp 0 00:00 0 ", JIT, "generated code"},
	{"1000-2000 r-xp 0 00:00 0 [anon:v8]", JIT, "v8"},
	{"1000-2000 rw-p 0 00:00 0 [anon:jemalloc_pg]", Allocator, "jemalloc_pg"},
	{"1000-2000 rw-p 0 00:00 0 [anon: glibc: malloc arena]", Arena, "glibc: malloc arena"},
	{"1000-2000 rw-p 0 00:00 0 [anon: glibc: pthread stack: 4711]", ThreadStack, "thread stack"},
	{"1000-2000 rw-s 0 00:01 9 /dev/zero (deleted)", Shmem, "shared anonymous memory"},
	{"1000-2000 rw-s 0 00:01 9 [anon_shmem:batches]", Shmem, "batches"},
	{"1000-2000 rw-s 0 00:01 9 /SYSV00000000 (deleted)", Shmem, "System V shared memory"},
	{"1000-2000 rw-s 0 00:01 9 /memfd:numba (deleted)", Shmem, "memfd:numba"},
	{"1000-2000 rw-s 0 00:01 9 /memfd:batch 17 (deleted)", Shmem, "memfd:batch *"},
	{"1000-2000 rw-s 0 00:01 9 /dev/shm/torch_1234_567_0 (deleted)", Shmem, "/dev/shm/torch_*"},
	{"1000-2000 rw-s 0 00:01 9 /dev/shm/nccl-QwErTy", Shmem, "/dev/shm/nccl-*"},
	{"1000-2000 rw-s 0 00:01 9 /dev/shm/u1000-Shm_a8", Shmem, "/dev/shm/u*"},
	{"1000-2000 rw-s 0 00:01 9 /dev/shm/data_cache.bin", Shmem, "/dev/shm/data_cache.bin"},
	{"1000-2000 rw-s 0 00:06 9 /dev/nvidia0", DeviceFile, "/dev/nvidia0"},
	{"1000-201000 rw-p 0 00:0f 9 /anon_hugepage (deleted)", Hugetlb, "huge pages"},
	{"1000-201000 rw-s 0 00:0f 9 /dev/hugepages/pool", Hugetlb, "huge pages"},
}

func TestRegionOf(t *testing.T) {
	for _, l := range lines {
		maps := tracertest.Must(process.ParseMaps([]byte(l.line)))(t)
		regions := Classify(maps, nil, nothing{})
		if len(regions) != 1 || regions[0].Class != l.class || regions[0].Name != l.name {
			t.Errorf("%s\ngot %+v, want %s, %q", l.line, regions, l.class, l.name)
		}
		if len(regions) == 1 && maps[0].IsFile() {
			r, m := regions[0], maps[0]
			if r.File != m.File() || r.Offset != m.Offset || r.Private == m.Shared {
				t.Errorf("%s\ngot %+v", l.line, r)
			}
		}
	}
}

func TestTmpfs(t *testing.T) {
	for path, want := range map[string]string{
		"/scratch/batches.bin (deleted)":      "/scratch/batches.bin",
		"/srv/root/dev/shm/torch_1_2_3":       "/dev/shm/torch_*",
		"/srv/root/dev/shm/nccl-Qw (deleted)": "/dev/shm/nccl-*",
	} {
		m := process.Mapping{Start: 0x1000, End: 0x2000, Inode: 9, Path: path, Shared: true, Tmpfs: true}
		if class, name := classOf(m); class != Shmem || name != want {
			t.Errorf("%s: %s %q, want %q", path, class, name, want)
		}
		m.Tmpfs = false
		if class, _ := classOf(m); class != File {
			t.Errorf("%s, not on a tmpfs: %s", path, class)
		}
	}

	device := process.Mapping{Inode: 9, Path: "/dev/nvidia0", Shared: true, Tmpfs: true} // as in a container
	if class, _ := classOf(device); class != DeviceFile {
		t.Errorf("a device's node on a tmpfs: %s", class)
	}
}

type nothing struct{}

func (nothing) Peek(addresses []uint64, _ int) ([][]byte, error) {
	return make([][]byte, len(addresses)), nil
}
