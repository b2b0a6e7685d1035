package native

import (
	"os/exec"
	"testing"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestInterpreterOf finds the files of interpreters, and no program that exports the functions of
// one.
func TestInterpreterOf(t *testing.T) {
	for _, c := range []struct{ path, symbol, want string }{
		{"/usr/bin/python3.11", "_PyRuntime", "CPython"},
		{"/usr/bin/perl", "perl_construct", "Perl"},
		{"/usr/lib/libruby-3.1.so.3.1", "ruby_init", "Ruby"},
		{"/usr/sbin/php-fpm8.2", "php_module_startup", "PHP"},
		{"/usr/lib/liblua5.4.so.0", "lua_newstate", "Lua"},
		{"/usr/bin/lua5.4", "lua_newstate", "Lua"},
		{"/usr/bin/redis-server", "lua_newstate", ""},
		{"/usr/bin/lua5.4", "main_loop", ""},
	} {
		path := tracertest.BuildLibrary(t, "exports.c", "libexports.so", "-DNAME="+c.symbol)
		f := tracertest.Must(hostile.Open(nil, path, 0, 0))(t)
		defer f.Close()
		file := tracertest.Must(symbol.Open(f, path))(t)
		if got := interpreterOf(process.Mapping{Path: c.path}, file); got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.path, c.symbol, got, c.want)
		}
	}
}

// TestInterpreter finds Perl, which Debian links into its program. The variables of it are its own.
func TestInterpreter(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/perl", "-e",
		`$| = 1; print "ready\n"; <STDIN>`))
	target.Await("ready")
	s := openStatics(t, target.PID())
	if s.Interpreter() != "Perl" || s.Runtime() != "" {
		t.Errorf("%q, %q, want Perl and no runtime", s.Interpreter(), s.Runtime())
	}
	for _, v := range s.variables {
		isPerl := v.mapping.Path == "/usr/bin/perl"
		if s.IsInterpreter(v.Start) != isPerl {
			t.Errorf("%s has an interpreter: %v", v.mapping.Path, !isPerl)
		}
	}
}
