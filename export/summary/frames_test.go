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
