package native

import (
	"path"
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// Runtimes whose references no scan of memory finds: they compress pointers, box them in numbers,
// or keep them in tables of their own. A process has one by the name of a mapped file, of its
// program, or by a symbol that a file exports, since many programs link the runtime statically.
var (
	runtimesOfFiles = []struct{ prefix, runtime string }{
		{"libnode.so", "V8"},
		{"libv8", "V8"},
		{"libcef.so", "V8"},
		{"libQt5WebEngineCore", "V8"},
		{"libQt6WebEngineCore", "V8"},
		{"libjvm.so", "Java"},
		{"libart.so", "ART"},
		{"libcoreclr.so", ".NET"},
		{"libjavascriptcoregtk-", "JavaScriptCore"},
		{"libJavaScriptCore.so", "JavaScriptCore"},
		{"libmozjs-", "SpiderMonkey"},
		{"libhermes.so", "Hermes"},
		{"libluajit-", "LuaJIT"},
		{"libracketcs", "Racket"},
	}
	runtimesOfPrograms = map[string]string{
		"node": "V8", "nodejs": "V8", "deno": "V8", "d8": "V8", "electron": "V8", "chrome": "V8",
		"chromium": "V8", "bun": "JavaScriptCore", "java": "Java", "dotnet": ".NET",
		"luajit": "LuaJIT", "firefox": "SpiderMonkey", "racket": "Racket", "scheme": "Chez",
		"sbcl": "SBCL",
	}
	runtimesOfSymbols = map[string]string{
		"_ZN2v87Isolate10GetCurrentEv": "V8", "JNI_CreateJavaVM": "Java",
		"coreclr_initialize": ".NET", "JSGlobalContextCreate": "JavaScriptCore",
		"luaJIT_setmode": "LuaJIT", "hermes_create_hermes_runtime": "Hermes",
	}
)

// interpretersOfSymbols are interpreters with a heap of their own, whose pointers are plain: a
// sweep finds them, but no variable of C says which variable of the script keeps an object. An
// editor or a database that exports the functions of Lua is none: files has to begin the name of
// the file.
var interpretersOfSymbols = []struct{ symbol, files, interpreter string }{
	{"_PyRuntime", "", "CPython"},
	{"perl_construct", "", "Perl"},
	{"ruby_init", "", "Ruby"},
	{"php_module_startup", "", "PHP"},
	{"lua_newstate", "lua", "Lua"},
	{"lua_newstate", "liblua", "Lua"},
}

// interpreterOf returns the interpreter that a mapped file has; empty: none that is known.
func interpreterOf(m process.Mapping, file *symbol.File) string {
	base := path.Base(m.Path)
	for _, of := range interpretersOfSymbols {
		if _, ok := file.Export(of.symbol); ok && strings.HasPrefix(base, of.files) {
			return of.interpreter
		}
	}
	return ""
}

// Interpreter returns the interpreter in the process whose variables cannot be read: "Perl"; empty:
// none is known.
func (s *Statics) Interpreter() string { return s.interpreter }

// Runtime returns the runtime in the process whose references cannot be read: "V8"; empty: none is
// known.
func (s *Statics) Runtime() string { return s.runtime }

// runtimeOfProgram returns the runtime that a process executes by its name; empty: none that is
// known.
func runtimeOfProgram(p *process.Process) string {
	return runtimesOfPrograms[path.Base(strings.TrimSuffix(p.Executable, " (deleted)"))]
}

// runtimeOf returns the runtime that a mapped file has; empty: none that is known.
func runtimeOf(m process.Mapping, file *symbol.File) string {
	base := path.Base(m.Path)
	for _, of := range runtimesOfFiles {
		if strings.HasPrefix(base, of.prefix) {
			return of.runtime
		}
	}
	for name, runtime := range runtimesOfSymbols {
		if _, ok := file.Export(name); ok {
			return runtime
		}
	}
	return ""
}
