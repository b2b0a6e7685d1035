package summary

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// TestUnnamedLanguage finds the runtime whose functions have no names, by the files of the stacks.
func TestUnnamedLanguage(t *testing.T) {
	const (
		node      = "v8::Call (/usr/bin/node)"
		jvm       = "JavaCalls::call_helper (/usr/lib/jvm/lib/server/libjvm.so)"
		ruby      = "rb_vm_exec (/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)"
		generated = "[anonymous]+0x7f00 ([anonymous])"
	)
	for name, c := range map[string]struct {
		callers  []string
		want     growth.Runtime
		isListed bool
	}{
		"node":             {[]string{generated, node}, growth.RuntimeNode, false},
		"node's own alone": {[]string{"alloc (node:buffer)", node}, growth.RuntimeNode, true},
		"node, named":      {[]string{"keep (/srv/app.js)", node}, "", false},
		"java":             {[]string{generated, jvm}, growth.RuntimeJava, false},
		"java, its interpreter": {
			[]string{"java.util.zip.Deflater.init ([anonymous])", jvm}, growth.RuntimeJava, true,
		},
		"java, named": {[]string{"Leak.open ([anonymous])", jvm}, "", false},
		"ruby":        {[]string{ruby}, growth.RuntimeRuby, false},
		"php":         {[]string{"php8.2+0x2d3b58 (/usr/bin/php8.2)"}, growth.RuntimePHP, false},
		"C":           {[]string{"main (/usr/bin/redis-server)"}, "", false},
		"Python":      {[]string{"<module> (/srv/train.py:3)"}, "", false},
		"Lua in nginx": {
			[]string{"lua_pcall (/usr/lib/libluajit-5.1.so.2)", "ngx_http_run (/usr/sbin/nginx)"},
			growth.RuntimeLua, false,
		},
		"a library of C that node loads": {
			[]string{"compress (/srv/addon.node)", node}, "", false,
		},
		"no runtime": {[]string{"g_main (/usr/lib/libglib-2.0.so.0)"}, "", false},
	} {
		s := Suspect{Function: "deflateInit2_ (/usr/lib/libz.so.1)", Callers: c.callers}
		if got, isListed := s.UnnamedLanguage(); got != c.want || isListed != c.isListed {
			if c.want == "" && got == "" {
				continue
			}
			t.Errorf("%s: %q, listed %v", name, got, isListed)
		}
	}
}

// TestUnnamedFile finds the file without symbols that keeps WHERE from naming a function.
func TestUnnamedFile(t *testing.T) {
	const (
		script = "load (/srv/train.py:3)"
		jpeg   = "libjpeg.so.62.3.0+0x41f2 (/usr/lib/x86_64-linux-gnu/libjpeg.so.62.3.0)"
		pil    = "_decode (/usr/lib/python3/dist-packages/PIL/_imaging.so)"
		own    = "libown.so+0x12 (/app/libown.so)"
		server = "served+0x3b2a1 (/usr/sbin/served)"
		libc   = "libc.so.6+0x2724a (/usr/lib/x86_64-linux-gnu/libc.so.6)"
		grow   = "BUF_MEM_grow (/usr/lib/libcrypto.so.3)"
		cuda   = "libc10_cuda.so+0x1 (/usr/lib/libc10_cuda.so)"

		jpegFile = "/usr/lib/x86_64-linux-gnu/libjpeg.so.62.3.0"
		libcFile = "/usr/lib/x86_64-linux-gnu/libc.so.6"
	)
	for name, c := range map[string]struct {
		function string
		path     []string
		callers  []string
		want     string
	}{
		"library alone":           {jpeg, nil, nil, jpegFile},
		"called by Python":        {script, []string{script, jpeg}, nil, jpegFile},
		"below a named one":       {script, []string{script, pil, jpeg}, nil, ""},
		"the user's own":          {script, []string{script, pil, own}, nil, "/app/libown.so"},
		"the user's own, another": {script, []string{script, "grow (/app/x.so)", own}, nil, ""},
		"stripped program":        {grow, nil, []string{server, libc}, "/usr/sbin/served"},
		"named program":           {"main (/usr/sbin/served)", nil, []string{libc}, ""},
		"named library":           {grow, nil, []string{libc}, ""},
		"the C library":           {libc, nil, nil, libcFile},
		"generated code":          {"[anonymous]+0x7f00 ([anonymous])", nil, nil, ""},
		"no file":                 {"[unknown]+0x7f00", nil, nil, ""},
		"PyTorch's allocator":     {script, []string{script, cuda}, nil, ""},
	} {
		s := Suspect{Function: c.function, Path: c.path, Callers: c.callers}
		if got := s.UnnamedFile(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSymbolsLimit: the limit has the package of the file that has no symbols.
func TestSymbolsLimit(t *testing.T) {
	s := &Summary{Suspects: []Suspect{{Function: "libz.so.1+0x1 (/usr/lib/libz.so.1)"}}}
	s.AddLimits(func(file string) growth.DebugPackage {
		return growth.DebugPackage{Manager: growth.ManagerApt, Name: "of" + file}
	})

	want := Limitation{Code: LimitedSymbols, File: "/usr/lib/libz.so.1"}
	want.Manager, want.Package = growth.ManagerApt, "of"+want.File
	if len(s.Evidence.Limits) != 1 || s.Evidence.Limits[0] != want {
		t.Errorf("%+v, want %+v", s.Evidence.Limits, want)
	}

	const script = "load (/srv/train.py:3)"
	none := func(string) growth.DebugPackage { return growth.DebugPackage{} }
	s = &Summary{Suspects: []Suspect{{Function: script, Path: []string{script, s.Suspects[0].Function}}}}
	if s.AddLimits(none); s.Evidence != nil {
		t.Errorf("the user's line is known: %+v", s.Evidence.Limits)
	}
	s.Lost = &Lost{}
	if s.AddLimits(none); s.Evidence == nil || s.Evidence.Limits[0].File != "/usr/lib/libz.so.1" {
		t.Errorf("the library loses the memory: %+v", s.Evidence)
	}
}
