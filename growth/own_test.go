package growth

import (
	"strconv"
	"testing"
)

func TestIsOwnNative(t *testing.T) {
	for file, want := range map[string]bool{
		"/home/u/job/libsession.so":                                     true,
		"/app/build/ops.cpython-311-x86_64-linux-gnu.so":                true,
		"/root/.cache/torch_extensions/py311_cpu/ops/ops.so":            true,
		"/opt/trainer/lib/libjob.so.2":                                  true,
		"/home/u/nist":                                                  true,
		"/usr/bin/redis-server":                                         true,
		"/usr/lib/postgresql/15/bin/postgres":                           true,
		"/usr/bin/python3.11":                                           false,
		"/root/.pyenv/versions/3.11.7/bin/python3.11":                   false,
		"/usr/bin/perl":                                                 false,
		"/usr/bin/php8.2":                                               false,
		"/usr/lib/jvm/java-17-openjdk-amd64/bin/java":                   false,
		"/usr/lib/x86_64-linux-gnu/libz.so.1.2.13":                      false,
		"/lib/x86_64-linux-gnu/libc.so.6":                               false,
		"/srv/chroot/usr/lib/x86_64-linux-gnu/libc.so.6":                false,
		"/usr/local/lib/libfoo.so":                                      false,
		"/opt/conda/lib/libmkl_rt.so.2":                                 false,
		"/opt/rocm-6.0/lib/libamdhip64.so":                              false,
		"/home/u/miniconda3/envs/x/lib/libstdc++.so.6":                  false,
		"/home/u/venv/lib/python3.11/site-packages/PIL/_imaging.so":     false,
		"/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64.so": false,
		"/tmp/torchinductor_u/ab/cabc.so":                               false,
		"[vdso]":                                                        false,
	} {
		f := Frame{Function: "grow", Module: &Module{Path: file}}
		if got := f.IsOwnNative(); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}

	for _, f := range []Frame{
		{Function: "put"},
		{Function: "com.example.Cache.put"},
		{Function: "Leak.openStream"},
		{Function: "void com.example.Cache::put(java.lang.Object)"},
		{Function: "keep", File: "/srv/app/server.js", StartLine: 3},
		{Function: "[anonymous]+0x7f00"}, // no name, no code of anybody's
	} {
		f.Module = &Module{Path: ModuleAnonymous}
		if own := f.HasName(); f.IsOwnNative() != own {
			t.Errorf("generated code %q: own %v", f.Function, !own)
		}
	}
	for _, f := range []Frame{
		{Function: "BytecodeHandler:Star0"},
		{Function: "Interpreter"},
		{Function: "StubRoutines (1)"},
		{Function: "java.util.ArrayList.add"},
		{Function: "int java.lang.String::hashCode()"},
		{Function: "alloc", File: "node:buffer"},
		{Function: "next", File: "/srv/app/node_modules/express/lib/router/index.js"},
	} {
		if f.Module = (&Module{Path: ModuleAnonymous}); f.IsOwnNative() {
			t.Errorf("%q of the runtime or a package is own code", f.Function)
		}
	}

	template := Frame{
		Function: "void std::vector<int>::_M_realloc_insert<int>(int&&)", Module: &Module{Path: "/app/x"},
	}
	if template.IsOwnNative() {
		t.Error("a template of the library is the program's own")
	}
}

func TestIsAllocationWrapper(t *testing.T) {
	for _, name := range []string{
		"malloc", "operator new(unsigned long)", "zmalloc", "zmalloc_usable",
		"ztrymalloc_usable_internal", "xmalloc", "xcalloc", "xrealloc", "safe_malloc",
		"Perl_safesysmalloc", "PyMem_Malloc", "PyMem_RawMalloc", "_PyObject_Malloc",
		"PyObject_Realloc", "_PyMem_DebugRawAlloc", "g_malloc", "g_malloc0_n", "g_slice_alloc",
		"g_strdup", "xstrndup", "av_malloc", "CRYPTO_zalloc", "sqlite3MemMalloc", "uv__malloc",
		"AllocSetAlloc", "AllocSetAllocFromNewBlock", "palloc0", "MemoryContextAllocExtended",
		"_emalloc_large", "zend_mm_alloc_huge", "ruby_xmalloc2", "objspace_xmalloc0", "luaM_malloc_",
		"runtime.mallocgc", "runtime.(*mheap).sysAlloc", "x_cgo_mmap", "je_arrow_mallocx", "rallocx",
		"c10::DefaultCPUAllocator::allocate(unsigned long)",
		"__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)",
		"std::vector<int, std::allocator<int> >::push_back(int const&)",
		"void std::__cxx11::basic_string<char>::_M_construct<char*>(char*, char*)",
		"alloc::raw_vec::finish_grow", "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
		"(anonymous namespace)::Pool<int>::alloc(int)", "_sdsnewlen", "sdstrynewlen", "mem_get",
		"arena_push", "g_string_new_len", "evbuffer_new",
	} {
		if !IsAllocationWrapper(name) {
			t.Errorf("%s is none", name)
		}
	}

	for _, name := range []string{
		"createStringObject", "session_register", "main", "grow", "main.remember", "deflateInit2_",
		"app::Cache::remember(int)", "PrepareQuery", "PyList_Append", "allocation_report",
		"Allocator::Report()", "load_allocated_pages", "mmap_index", "realloc_policy_update",
		"Store<std::string>::add(std::string const&)", "libx.so+0x1234", "process_alloc_events",
		"session_new", "renewString", "pool_report", "stringNewline", "arena_push_scene",
	} {
		if IsAllocationWrapper(name) {
			t.Errorf("%s is one", name)
		}
	}
}

func TestHasName(t *testing.T) {
	for function, want := range map[string]bool{
		"grow": true, "libruby.so+0xd8484": false, "[anonymous]+0x10": false, "operator+(A, B)": true,
	} {
		if f := (Frame{Function: function}); f.HasName() != want {
			t.Errorf("%s: %v", function, !want)
		}
	}
}

func TestRuntimeOf(t *testing.T) {
	for file, want := range map[string]Runtime{
		"/usr/bin/node": RuntimeNode,
		"/usr/lib/x86_64-linux-gnu/libnode.so.108":              RuntimeNode,
		"/home/u/.nvm/versions/node/v20.1.0/bin/node (deleted)": RuntimeNode,
		"/usr/bin/deno": RuntimeDeno,
		"/usr/lib/jvm/java-17/lib/server/libjvm.so": RuntimeJava,
		"/usr/share/dotnet/libcoreclr.so":           RuntimeDotnet,
		"/usr/lib/erlang/erts-13.1/bin/beam.smp":    RuntimeErlang,
		"/opt/julia/lib/libjulia-internal.so.1.10":  RuntimeJulia,
		"/usr/bin/lua5.4":                           RuntimeLua,
		"/usr/bin/luajit-2.1.0-beta3":               RuntimeLua,
		"/usr/lib/libluajit-5.1.so.2":               RuntimeLua,
		"/usr/bin/perl":                             RuntimePerl,
		"/usr/bin/perl5.36.0":                       RuntimePerl,
		"/usr/lib/x86_64-linux-gnu/libperl.so.5.36": RuntimePerl,
		"/usr/bin/php8.2":                           RuntimePHP,
		"/usr/sbin/php-fpm8.2":                      RuntimePHP,
		"/usr/lib/apache2/modules/libphp8.2.so":     RuntimePHP,
		"/usr/lib/R/lib/libR.so":                    RuntimeR,
		"/usr/lib/libruby-3.1.so.3.1.2":             RuntimeRuby,
		"/usr/bin/ruby3.1":                          RuntimeRuby,
		"/usr/bin/python3.11":                       "",
		"/usr/bin/node_exporter":                    "",
		"/usr/lib/libluatexbase.so":                 "",
		"/usr/bin/java":                             "", // libjvm.so runs it
		"/srv/perl-daemon":                          "",
	} {
		if got := RuntimeOf(file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

func TestNameTest(t *testing.T) {
	asked := make(map[string]int)
	test := nameTest{ask: func(name string) bool {
		asked[name]++
		return name == "malloc"
	}}
	for range 3 {
		if !test.of("malloc") || test.of("main") {
			t.Fatal("a wrong answer")
		}
	}
	if asked["malloc"] != 1 || asked["main"] != 1 {
		t.Errorf("asked %v times, want once each", asked)
	}

	for i := range 2 * maxNames {
		test.of(strconv.Itoa(i))
	}
	if len(test.answers) > maxNames {
		t.Errorf("%d names are kept, want %d at most", len(test.answers), maxNames)
	}
}
