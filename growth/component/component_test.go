package component

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

var (
	native, python = growthtest.NativeFrame, growthtest.PythonFrame

	mallocFrame = native("malloc", "/lib/libc.so.6")
	stepLine    = python("train_step", "/src/train.py", 42)
)

type frames = []growth.Frame

const packages = "/venv/lib/python3.12/site-packages/"

func TestPythonModule(t *testing.T) {
	for file, want := range map[string]string{
		"/venv/lib/python3.13/site-packages/torch/__init__.py":               "torch",
		"/venv/lib/python3.13/site-packages/torchvision/models/resnet.py":    "torchvision",
		"/venv/lib64/python3.9/site-packages/PIL/Image.py":                   "PIL",
		"/home/u/.local/lib/python3.11/site-packages/six.py":                 "six",
		"/a/site-packages/outer/site-packages/inner/x.py":                    "inner",
		"/usr/lib/python3.11/json/__init__.py":                               "json",
		"/opt/conda/lib/python3.13t/threading.py":                            "threading",
		"/home/me/.local/share/uv/python/cpython-3.12/lib/python3.12/ast.py": "ast",
		"<frozen importlib._bootstrap_external>":                             "importlib",
		"/tmp/torchinductor_root/ab/cabcdefghijkl.py":                        "cabcdefghijkl.py",
		"/home/u/project/train.py":                                           "train.py",
		"/home/u/project/models/__init__.py":                                 "models",
		"/home/u/project/trainer/__main__.py":                                "trainer",
		"__main__.py":                                                        "__main__.py",
		"/srv/lib/pythonic/train.py":                                         "train.py",
		"":                                                                   "",
		"<string>":                                                           "",
		"<eval_with_key>.12":                                                 "",
	} {
		if got := pythonModule(file); got != want {
			t.Errorf("%q belongs to %q, want %q", file, got, want)
		}
	}
}

func TestLibraryName(t *testing.T) {
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

func rulesOf(t *testing.T, rules string) *Rules {
	t.Helper()
	o, err := ParseRules("my.rules", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

var (
	pilFrame   = python("Image.resize", packages+"PIL/Image.py", 2192)
	torchFrame = native("at::_ops::conv2d::call(at::Tensor const&)",
		packages+"torch/lib/libtorch_cpu.so")
	jsonFrame = python("decode", "/usr/lib/python3.11/json/decoder.py", 3)
)

func TestRulesOf(t *testing.T) {
	const libc, server, library = "/lib/libc.so.6", "/usr/bin/postgres", "/opt/libx.so"
	newFrame := native("operator new(unsigned long)", "/lib/libstdc++.so.6")
	numpy := native("PyArray_NewFromDescr", packages+"numpy/core/_multiarray.so")
	grow, main := native("grow", library), native("main", server)

	// Who asks the driver of GPUs for memory, beside PyTorch's own allocator.
	driver := native("cuMemCreate", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.1")
	runtime := native("cudaMalloc", "/usr/lib/x86_64-linux-gnu/libcudart.so.12")
	torchsCache := native("c10::cuda::CUDACachingAllocator::Native::alloc",
		packages+"torch/lib/libc10_cuda.so")

	for _, c := range []struct {
		name   string
		frames []growth.Frame
		want   string
	}{
		{"and a library of C", frames{mallocFrame, newFrame, native("parse", "/lib/libx.so"), stepLine}, "train.py"},
		{"but not what numpy calls back", frames{mallocFrame, python("f", "/src/train.py", 4), numpy, stepLine}, "train.py"},
		{"no Python: the library", frames{mallocFrame, newFrame, native("grow", "/opt/libx.so"), native("main", "/bin/x")}, "libx.so"},
		{"code without a file is its caller's", frames{mallocFrame, python("__init__", "<string>", 2), stepLine}, "train.py"},
		{"the allocator's insides hold nothing", frames{native("sysmalloc", "/opt/liballoc.so"), native("malloc", "/opt/liballoc.so"), native("main", "/src/leak")}, "leak"},
		{"nor does a layer below no Python", frames{mallocFrame, torchFrame, native("main", "/src/infer")}, "infer"},
		{"nor does another allocator", frames{mallocFrame, native("mi_heap_malloc", "/opt/libmimalloc.so"), native("run", "/opt/libtrainer.so")}, "libtrainer.so"},
		{"a layer's Python alone", frames{mallocFrame, python("f", packages+"torch/storage.py", 1), native("start_thread", libc)}, "torch"},
		{"layers alone", frames{mallocFrame, torchFrame, native("start_thread", libc)}, "torch"},
		{"Python alone", frames{mallocFrame, python("run", "/usr/lib/python3.11/threading.py", 1)}, "python"},
		{"threads of OpenMP", frames{mallocFrame, native("gomp_team_start", "/lib/libgomp.so.1")}, "openmp"},
		{"the C library alone", frames{mallocFrame, native("start_thread", libc)}, "libc"},
		{"code in no module", frames{mallocFrame, {Function: "0x1234"}, native("main", "/src/leak")}, "leak"},
		{"nothing known", frames{{Function: "0x1234"}}, "other"},
		{"not kept", nil, "other"},

		{"NCCL", frames{driver, native("ncclCuMemAlloc", packages+"nvidia/nccl/lib/libnccl.so.2"), stepLine}, "nccl"},
		{"cuBLASLt", frames{driver, runtime, native("cublasLtMatmul", packages+"nvidia/cublas/lib/libcublasLt.so.12"), stepLine}, "cublas"},
		{"cuDNN", frames{driver, runtime, native("f", packages+"nvidia/cudnn/lib/libcudnn_ops.so.9"), stepLine}, "cudnn"},
		{"vLLM's allocator below PyTorch's", frames{driver, native("my_malloc", packages+"vllm/cumem_allocator.abi3.so"), torchsCache, stepLine}, "train.py"},
		{"an extension", frames{driver, runtime, native("alloc", packages+"deep_ep_cpp.abi3.so"), stepLine}, "train.py"},
		{"PyTorch", frames{driver, runtime, torchsCache, stepLine}, "train.py"},

		{"the caller of a server's wrapper", frames{mallocFrame, native("zmalloc", server), grow, main}, "libx.so"},
		{"without symbols", frames{mallocFrame, native("postgres+0x5c7860", server), native("palloc", server), grow, main}, "libx.so"},
		{"a library without symbols", frames{mallocFrame, native("libx.so+0x60", library), main}, "libx.so"},
		{"a server's own", frames{mallocFrame, native("zmalloc", server), main}, "postgres"},
	} {
		if got := DefaultRules().Of(&growth.Stack{Frames: c.frames, Truncated: "for a test"}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRulesOfRoots(t *testing.T) {
	for root, want := range map[string]string{
		"[file: /data/train.bin]": "file", "[before tracing]": "before-tracing",
		"[start of the process]":    "before-tracing",
		"[heap: free but resident]": "libc", "[unexplained]": "other", "": "other",
		growth.RootCudaBeforeTracing: "before-tracing", growth.RootCudaUntraced: "torch",
		growth.RootCudaCached: "torch", growth.RootNotAttributed: "cuda",
	} {
		if got := DefaultRules().Of(growth.NamedStack(1, root, "arena 3")); got != want {
			t.Errorf("%q: %q, want %q", root, got, want)
		}
		held := (&growth.Stack{Frames: frames{mallocFrame, pilFrame}}).Under(root)
		if got := DefaultRules().Of(held); got != "pil" {
			t.Errorf("%q with a allocation site: %q", root, got)
		}
	}
}

func TestParseRules(t *testing.T) {
	t.Run("a user's rules go first", func(t *testing.T) {
		o := rulesOf(t, `
# a comment, and a blank line

images	any   file /PIL/	# resized
decoder   leaf  file /json/  function ^decode$
-         leaf  file /train\.py$
loader    any   root ^\[file:.*\.parquet
`)
		for _, c := range []struct {
			want  string
			stack *growth.Stack
		}{
			{"images", &growth.Stack{Frames: frames{mallocFrame, pilFrame, stepLine}}},
			{"decoder", &growth.Stack{Frames: frames{mallocFrame, jsonFrame, stepLine}}},
			{"run.py", &growth.Stack{Frames: frames{mallocFrame, python("encode", jsonFrame.File, 1), stepLine, python("<module>", "/src/run.py", 2)}}},
			{"loader", growth.NamedStack(1, "[file: /data/a.parquet]")},
			{"file", growth.NamedStack(1, "[file: /data/a.bin]")},
			{"numpy", &growth.Stack{Frames: frames{mallocFrame, native("f", "/venv/lib/python3.12/site-packages/numpy/x.so"), stepLine}}},
		} {
			if got := o.Of(c.stack); got != c.want {
				t.Errorf("%+v: %q, want %q", c.stack, got, c.want)
			}
		}
	})

	t.Run("the first match decides", func(t *testing.T) {
		a, b := "a any function ^f$\n", "b any function ^g$\n"
		s := &growth.Stack{Frames: frames{
			native("g", "/x.so"), native("f", "/x.so"),
		}}
		for rules, want := range map[string]string{a + b: "a", b + a: "b", "c leaf module x\n" + a: "c", a + "c leaf module x\n": "a"} {
			if got := rulesOf(t, rules).Of(s); got != want {
				t.Errorf("%q: %q, want %q", rules, got, want)
			}
		}
	})

	t.Run("all patterns match one frame", func(t *testing.T) {
		o := rulesOf(t, "both any function ^f$ module /x\\.so\n")
		for want, frames := range map[string]frames{
			"both": {native("f", "/x.so")},
			"y.so": {native("f", "/y.so"), native("g", "/x.so")},
		} {
			if got := o.Of(&growth.Stack{Frames: frames}); got != want {
				t.Errorf("%+v: %q, want %q", frames, got, want)
			}
		}
	})

	t.Run("errors have the line and the cause", func(t *testing.T) {
		long := strings.Repeat("x", maxNameBytes+1)
		for text, want := range map[string]string{
			"pil any file /PIL/\nx":   "my.rules:2: 1 words, not COMPONENT any|leaf WHERE PATTERN",
			"x any file a module":     "5 words",
			"x all file a":            `"all" is neither any nor leaf`,
			"x any line a":            `"line" is none of function, file, module and root`,
			"\n\nx any file (":        "my.rules:3: pattern of file: error parsing regexp: missing closing )",
			"x any file a module b":   "a file or a module, not both",
			"x any root a function b": "a root is no leaf, and has nothing but its name",
			"- any file a":            `component "-" is for leaf rules`,
			long + " any file a":      "component of more than 64 bytes",
			"x\x1b[2J any file a":     `component "x\x1b[2J" is not printable`,

			strings.Repeat("x any file a\n", maxRules+1): "my.rules:1001: more than 1000 rules",
			strings.Repeat("#", MaxRulesBytes+1):         "my.rules: longer than 1048576 bytes",
		} {
			_, err := ParseRules("my.rules", []byte(text))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.40q: %v, want %q", text, err, want)
			}
		}
	})
}

func TestRulesCache(t *testing.T) {
	// A target may make up names without end.
	t.Run("is bounded", func(t *testing.T) {
		o := rulesOf(t, "")
		for i := range 3 * maxCached {
			// One library with many functions, then many scripts.
			f := native(fmt.Sprint(i), "/src/x.so")
			if i > 2*maxCached {
				f = python("f", fmt.Sprint("/src/", i, ".py"), 1)
			}
			if got, want := o.Of(&growth.Stack{Frames: frames{f}}), placeOf(&f).ownName(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
			known := len(o.places)
			if at := o.places[place{whereModule, "/src/x.so"}]; at != nil {
				known += len(at.functions)
			}
			if known > maxCached+3 {
				t.Fatalf("%d places and functions are maxCached", known)
			}
		}
	})

	t.Run("several goroutines", func(t *testing.T) {
		o := rulesOf(t, "")
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i := range 1000 {
					library := fmt.Sprint(i%50, ".so")
					frames := frames{native("f", "/opt/"+library)}
					if got := o.Of(&growth.Stack{Frames: frames}); got != library {
						t.Error(got)
					}
				}
			})
		}
		group.Wait()
	})
}

// The traced process makes up the names.
func FuzzRules(f *testing.F) {
	for _, seed := range []string{"", "<", "<frozen >", "/site-packages//x", "/site-packages/torch//", "//", "\xff/..", "/torchinductor_/", "[file: ]"} {
		f.Add(seed, "f")
	}
	o, _ := ParseRules("", nil)
	f.Fuzz(func(t *testing.T, place, function string) {
		for _, s := range []*growth.Stack{
			{Frames: frames{python(function, place, 1)}}, {Frames: frames{native(function, place)}}, growth.NamedStack(1, place, function),
		} {
			if component := o.Of(s); component == "" ||
				len(component) > max(len(place), len("inductor-compile")) {
				t.Errorf("%q belongs to %q", place, component)
			}
		}
	})
}
