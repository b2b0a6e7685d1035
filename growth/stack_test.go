package growth

import "testing"

func TestWithoutAllocator(t *testing.T) {
	for name, functions := range map[string][]string{
		"a block":             {"c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", "libc10_cuda.so+0x2a3f0", "empty_cuda"},
		"a wheel's block":     {"c10::reportMemoryUsageToProfiler", "libc10_cuda-9f3e1a.so+0x2a3f0", "empty_cuda"},
		"a block with names":  {"c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(c10::DeviceIndex, unsigned long, CUstream_st*)", "c10::cuda::CUDACachingAllocator::raw_alloc(unsigned long)", "empty_cuda"},
		"of no one's name":    {"c10::cuda::CUDACachingAllocator::(anonymous namespace)::allocate(unsigned long)", "empty_cuda"},
		"a segment":           {"cuMemAlloc_v2", "libcudart.so.12+0x1b3a0", "cudaMalloc", "libc10_cuda.so+0x2a3f0", "empty_cuda"},
		"an expandable one":   {"cuMemCreate", "c10::cuda::CUDACachingAllocator::Native::ExpandableSegment::map(SegmentRange)", "empty_cuda"},
		"an extension":        {"cuMemAllocAsync_ptsz", "cudaMallocAsync", "empty_cuda"},
		"a pinned block":      {"cuMemHostAlloc", "cudaHostAlloc", "empty_cuda"},
		"the driver alone":    {"cuMemAllocManaged", "empty_cuda"},
		"malloc below torch":  {"malloc", "libc10_cuda.so+0x1234", "empty_cuda"},
		"an allocator's name": {"empty_cuda", "my::CUDACachingAllocator::use"},
		"no allocator at all": {"empty_cuda", "cuMemcpyDtoH_v2"},
	} {
		frames := WithoutAllocator(NamedStack(1, "", append(functions, "main")...).Frames)
		if frames[0].Function != "empty_cuda" {
			t.Errorf("%s: %s", name, frames[0].Function)
		}
	}
	python := []Frame{{Function: "cudaMalloc", Python: true}, {Function: "main"}}
	if got := WithoutAllocator(python); len(got) != 2 {
		t.Errorf("a function of Python is an allocator: %v", got)
	}
}

func TestIsAllocatorFunction(t *testing.T) {
	for name, want := range map[string]bool{
		"malloc": true, "__GI___libc_malloc": true, "__posix_memalign": true, "__mmap": true,
		"operator new[]": true, "my_malloc": false, "malloc_consolidate": false,
		"Arena::free": false, "mmap_file": false, "__GI_main": false, "operator delete": false,
		"": false,
	} {
		if got := IsAllocatorFunction(name); got != want {
			t.Errorf("%q: of an allocator: %v, want %v", name, got, want)
		}
	}
}

func TestIsUserCode(t *testing.T) {
	for _, c := range []struct {
		function, file string
		line           int
		want           bool
	}{
		{"step", "/srv/train.py", 7, true},
		{"load", "/usr/lib/python3/dist-packages/numpy/core.py", 7, false},
		{"dumps", "/usr/lib/python3.11/json/encoder.py", 7, false},
		{"<module>", "/usr/bin/torchrun", 7, false},
		{"_find_and_load", "<frozen importlib._bootstrap>", 7, false},
		{"remember", "<stdin>", 1, true},

		{"remember", "<string>", 4, true}, // of python -c
		{"<module>", "<string>", 6, true},
		{"Cache.__init__", "<string>", 3, true},
		{"<module>", "<string>", 1, false}, // from multiprocessing.spawn import spawn_main
		{"__init__", "<string>", 3, false}, // of a dataclass
		{"__create_fn__.<locals>.__init__", "<string>", 3, false},
		{"<lambda>", "<string>", 1, false}, // of a namedtuple
	} {
		if got := IsUserCode(c.function, c.file, c.line); got != c.want {
			t.Errorf("%s in %s:%d: %v", c.function, c.file, c.line, got)
		}
	}
}
