package growth

import "testing"

func pythonFrame(function, file string, line int) Frame {
	return Frame{Function: function, File: file, Line: line, Python: true}
}

func nativeFrame(function, module string) Frame {
	return Frame{Function: function, Module: &Module{Path: module}}
}

func TestPythonFilesBelongToTheirPackage(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/python3/dist-packages/torch/_inductor/codecache.py":         "torch",
		"/venv/lib/python3.13/site-packages/torch/_inductor/runtime/hints.py": "torch",
		"/venv/lib/python3.13/site-packages/torch/nn/modules/conv.py":         "torch",
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
		"/tmp/torchinductor_root/ab/cabcdefghijkl.py":                         "cabcdefghijkl.py",
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

func TestLibrariesAreNamedByThePackageTheyComeWith(t *testing.T) {
	for file, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libfoo.so.6":                                               "libfoo.so.6",
		"/venv/lib/python3.13/site-packages/pandas/_libs/lib.cpython-313-x86_64-linux-gnu.so": "pandas",
		"/venv/lib/python3.13/site-packages/_cffi_backend.cpython-313-x86_64-linux-gnu.so":    "_cffi_backend.cpython-313-x86_64-linux-gnu.so",
		"/venv/lib/python3.13/site-packages/scipy.libs/libgfortran-040039e1.so.5":             "libgfortran-040039e1.so.5",
		"/src/leak": "leak",
		"":          "",
	} {
		if got := libraryName(file); got != want {
			t.Errorf("%q is named %q, want %q", file, got, want)
		}
	}
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
