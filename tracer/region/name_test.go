package region

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/process"
)

// lines are of /proc/PID/maps, each with the class and name that are due.
var lines = []struct {
	line  string
	class Class
	name  string
}{
	{"7f0000000000-7f0000001000 r-xp 00002000 fe:00 77 /usr/lib/libc.so.6", File, "/usr/lib/libc.so.6"},
	{"7f0000000000-7f0000001000 r--s 00002000 fe:00 77 /data/train.bin (deleted)", File, "/data/train.bin (deleted)"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [heap]", MainHeap, "main heap"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [stack]", MainStack, "[stack]"},
	{"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [vdso]", Kernel, "[vdso]"},
	{"7f0000000000-7f0000001000 r--p 00000000 00:00 0 [vvar_vclock]", Kernel, "[vvar_vclock]"},
	{"7f0000000000-7f0000001000 --xp 00000000 00:00 0 [uprobes]", Kernel, "[uprobes]"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0", Anonymous, "anonymous"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [anon:cache of rows]", Anonymous, "cache of rows"},
	{"7f0000000000-7f0000001000 rwxp 00000000 00:00 0", JIT, "generated code"},
	{"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 [anon:v8]", JIT, "v8"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [anon:jemalloc_pg]", Allocator, "jemalloc_pg"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [anon: glibc: malloc arena]", Arena, "glibc: malloc arena"},
	{"7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [anon: glibc: pthread stack: 4711]", ThreadStack, "thread stack"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/zero (deleted)", Shmem, "shared anonymous memory"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 [anon_shmem:batches]", Shmem, "batches"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /SYSV00000000 (deleted)", Shmem, "System V shared memory"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /memfd:numba (deleted)", Shmem, "memfd:numba"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /memfd:batch 17 (deleted)", Shmem, "memfd:batch *"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/torch_1234_567_0 (deleted)", Shmem, "/dev/shm/torch_*"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/psm_deadbeef", Shmem, "/dev/shm/psm_*"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/nccl-QwErTy", Shmem, "/dev/shm/nccl-*"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/sem.mp-abcdefgh", Shmem, "/dev/shm/sem.mp-*"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/u1000-Shm_a8", Shmem, "/dev/shm/u*"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:01 9 /dev/shm/data_cache.bin", Shmem, "/dev/shm/data_cache.bin"},
	{"7f0000000000-7f0000001000 rw-s 00000000 00:06 9 /dev/nvidia0", Device, "/dev/nvidia0"},
	{"7f0000000000-7f0000200000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)", Hugetlb, "huge pages"},
	{"7f0000000000-7f0000200000 rw-s 00000000 00:0f 9 /dev/hugepages/pool", Hugetlb, "huge pages"},
}

func TestEachLineOfTheMapsHasAClassAndAName(t *testing.T) {
	for _, l := range lines {
		maps, err := process.ParseMaps([]byte(l.line))
		if err != nil {
			t.Fatal(err)
		}
		regions := Classify(maps, nil, nothing{})
		if len(regions) != 1 || regions[0].Class != l.class || regions[0].Name != l.name {
			t.Errorf("%s\ngot %+v, want %s, %q", l.line, regions, l.class, l.name)
		}
	}
}

// The classes are finer than the kinds of tracer/mapping: each is of one kind alone.
func TestClassesAgreeWithTheKindsOfMappings(t *testing.T) {
	kinds := map[Class]growth.Kind{
		File: growth.KindFile, MainHeap: growth.KindHeap, MainStack: growth.KindStack, Shmem: growth.KindShmem, Device: growth.KindDevice,
		Kernel: growth.KindMmap, Anonymous: growth.KindMmap, JIT: growth.KindMmap, Allocator: growth.KindMmap, Arena: growth.KindMmap,
		ThreadStack: growth.KindMmap,
	}
	for _, l := range lines {
		maps, _ := process.ParseMaps([]byte(l.line))
		if kind, ok := kinds[l.class]; ok && addrspace.KindOf(maps[0]) != kind {
			t.Errorf("%s\nis of class %s and of kind %s, want %s", l.line, l.class, addrspace.KindOf(maps[0]), kind)
		}
	}
}

func TestARegionKnowsItsFileAndWhereItBeginsThere(t *testing.T) {
	maps, _ := process.ParseMaps([]byte("7f0000000000-7f0000001000 r-xp 00002000 fe:01 77 /lib/a.so\n7f0000001000-7f0000002000 rw-s 00003000 fe:01 77 /lib/a.so"))
	regions := Classify(maps, nil, nothing{})
	for i, r := range regions {
		if r.File != maps[i].File() || r.File.Inode != 77 || r.Offset != maps[i].Offset || r.Private != (i == 0) {
			t.Errorf("%+v, want that of %+v", r, maps[i])
		}
	}
}

// nothing is memory of which no page is resident.
type nothing struct{}

func (nothing) Resident(uint64) bool { return false }

func (nothing) Peek(addresses []uint64, _ int) [][]byte { panic("asked for what is not resident") }
