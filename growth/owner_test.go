package growth

import (
	"fmt"
	"testing"
)

func pythonFrame(function, file string, line int) Frame {
	return Frame{Function: function, File: file, Line: line, Python: true}
}

func nativeFrame(function, module string) Frame {
	return Frame{Function: function, Module: &Module{Path: module}}
}

func TestPythonFilesBelongToTheirPackage(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/python3/dist-packages/torch/_inductor/codecache.py":         "torch._inductor",
		"/venv/lib/python3.13/site-packages/torch/_inductor/runtime/hints.py": "torch._inductor",
		"/venv/lib/python3.13/site-packages/torch/nn/modules/conv.py":         "torch.nn",
		"/venv/lib/python3.13/site-packages/torch/serialization.py":           "torch",
		"/venv/lib/python3.13/site-packages/torch/__init__.py":                "torch",
		"/venv/lib/python3.13/site-packages/torchvision/models/resnet.py":     "torchvision",
		"/venv/lib64/python3.9/site-packages/PIL/Image.py":                    "PIL",
		"/home/u/.local/lib/python3.11/site-packages/six.py":                  "six",
		"/a/site-packages/outer/site-packages/inner/x.py":                     "inner",
		"/usr/lib/python3.11/json/decoder.py":                                 "json",
		"/usr/lib/python3.11/json/__init__.py":                                "json",
		"/opt/conda/lib/python3.13t/threading.py":                             "threading",
		"/home/me/.local/share/uv/python/cpython-3.12/lib/python3.12/ast.py":  "ast",
		"<frozen importlib._bootstrap_external>":                              "importlib",
		"<frozen runpy>":                                                      "runpy",
		"/tmp/torchinductor_root/ab/cabcdefghijkl.py":                         "torch._inductor",
		"/home/u/project/train.py":                                            "train.py",
		"train.py":                                                            "train.py",
		"/home/u/project/models/__init__.py":                                  "models",
		"/home/u/project/trainer/__main__.py":                                 "trainer",
		"__main__.py":                                                         "__main__.py",
		"/srv/lib/pythonic/train.py":                                          "train.py",
		"":                                                                    "",
		"<string>":                                                            "",
		"<eval_with_key>.12":                                                  "",
	} {
		if got := pythonModule(file); got != want {
			t.Errorf("%q belongs to %q, want %q", file, got, want)
		}
	}
}

func TestAStackBelongsToTheModuleOfPythonNearestToTheLeaf(t *testing.T) {
	malloc, libc := nativeFrame("malloc", "/lib/libc.so.6"), "/lib/libc.so.6"
	json := pythonFrame("decode", "/usr/lib/python3.11/json/decoder.py", 3)
	train := pythonFrame("step", "/src/train.py", 9)
	for _, c := range []struct {
		name   string
		frames []Frame
		want   string
	}{
		{"Python below Python", []Frame{malloc, nativeFrame("f", "/lib/libx.so"), json, train}, "json"},
		{"code without a file", []Frame{malloc, pythonFrame("__init__", "<string>", 2), train, json}, "train.py"},
		{"nothing but code without a file", []Frame{malloc, nativeFrame("g", "/lib/libx.so"), pythonFrame("f", "<string>", 1)}, "libx.so"},
		{"library", []Frame{malloc, nativeFrame("operator new(unsigned long)", "/lib/libstdc++.so.6"), nativeFrame("grow", "/opt/libtorch_cpu.so"), nativeFrame("main", "/bin/x")}, "libtorch_cpu.so"},
		{"allocator's insides", []Frame{nativeFrame("sysmalloc", libc), nativeFrame("__libc_malloc", libc), nativeFrame("main", "/src/leak")}, "leak"},
		{"allocator alone", []Frame{nativeFrame("mmap", libc), malloc}, "libc.so.6"},
		{"code in no module", []Frame{malloc, {Function: "0x1234"}, nativeFrame("main", "/src/leak")}, "leak"},
		{"nothing known", []Frame{{Function: "0x1234"}}, "[unknown]"},
		{"a Python function named as an allocator's", []Frame{nativeFrame("f", "/lib/libx.so"), pythonFrame("free", "<string>", 1), nativeFrame("main", "/bin/python")}, "libx.so"},
		{"not kept", nil, "[unknown]"},
	} {
		if got := Owner(&Stack{Frames: c.frames, Truncated: "for a test"}); got != c.want {
			t.Errorf("%s: belongs to %q, want %q", c.name, got, c.want)
		}
	}
}

// Paths are whatever the traced process calls its files.
func FuzzOwner(f *testing.F) {
	for _, seed := range []string{"", "<", "<frozen >", "<frozen .>", "/site-packages//x", "/site-packages/torch//", "/lib/python3./", "//", "\xff/..", "/torchinductor_/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		for _, frame := range []Frame{pythonFrame("f", file, 1), nativeFrame("f", file)} {
			s := &Stack{Frames: []Frame{frame}}
			if owner := Owner(s); owner == "" || len(owner) > max(len(file), len("torch._inductor")) {
				t.Errorf("%q belongs to %q", file, owner)
			}
			if got := Culprits([]StackTrend{{Stack: s, Growth: 1, Low: 1, Trend: TrendAccumulating}}); len(got) != 1 || got[0].Frame != frame {
				t.Errorf("%q: %s", file, fmt.Sprint(got))
			}
		}
	})
}

func TestTheFunctionsOfAnAllocatorAreToldByTheirWholeNames(t *testing.T) {
	for name, want := range map[string]bool{
		"malloc": true, "__libc_malloc": true, "__GI___libc_malloc": true, "__GI___libc_free": true, "free": true, "cfree": true,
		"calloc": true, "realloc": true, "__libc_reallocarray": true, "__posix_memalign": true, "aligned_alloc": true,
		"__libc_memalign": true, "valloc": true, "__libc_pvalloc": true, "mmap": true, "__mmap": true, "mmap64": true,
		"__GI___mmap64": true, "mremap": true, "__brk": true, "__GI_sbrk": true, "munmap": true, "__madvise": true,
		"operator new": true, "operator new[]": true,
		"my_malloc": false, "malloc_consolidate": false, "Arena::free": false, "free_list": false, "mmap_file": false,
		"__GI_main": false, "operator delete": false, "": false,
	} {
		if got := allocatorFunction.MatchString(name); got != want {
			t.Errorf("%q: of an allocator: %v, want %v", name, got, want)
		}
	}
}
