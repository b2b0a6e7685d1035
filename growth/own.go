package growth

import (
	"path"
	"regexp"
	"strings"
	"sync"
)

// HasName is false of code without a symbol, which reads "lib.so+0x1234".
func (f *Frame) HasName() bool { return !addressName.MatchString(f.Function) }

var addressName = regexp.MustCompile(`\+0x[0-9a-f]+( ` + regexp.QuoteMeta(ByFramePointer) + `)?$`)

// ByFramePointer ends the name of a function that was found by a frame pointer.
const ByFramePointer = "[by frame pointer]"

// IsOwnNative reports whether the frame is native code of the program itself: of its executable, or
// of a library that no distribution, environment or package manager has installed. An interpreter
// is not the program's own, nor are templates of C++ and Rust libraries in it. Generated code is,
// if it has a name that is not the runtime's.
func (f *Frame) IsOwnNative() bool {
	switch {
	case f.Python || f.Module == nil || libraryTemplate.MatchString(f.Function):
		return false
	case f.Module.Path != ModuleAnonymous:
		return IsOwnModule(f.Module.Path)
	case f.File != "":
		return strings.HasPrefix(f.File, "/") && IsOwnModule(f.File)
	}
	return f.HasName() && !runtimeFunction.MatchString(f.Function)
}

var (
	// installedModule matches folders of distributions, package managers and vendors, code without
	// a file, and caches of generated code.
	installedModule = regexp.MustCompile(`^\[|^/?(usr|lib(32|64|x32)?|nix|gnu|snap|memfd:)(/|$)|` +
		`/usr/(local/)?lib(32|64|x32)?/|-linux-(gnu|musl)[^/]*/|^/opt/(rocm|nvidia|intel|amd|aws)[^/]*/|/(site|dist)-packages/|/lib/python[0-9][^/]*/|` +
		`/[^/]*(conda|mamba|miniforge|pyenv)[^/]*/|/(\.rustup|\.nvm|linuxbrew)/|` +
		`/torchinductor_[^/]*/|/\.triton/`)
	// packageFolder matches folders of packages for the source files of other languages.
	packageFolder = regexp.MustCompile(`/(node_modules|gems|\.julia)/`)
	// runtimeFunction matches names of generated code that is the runtime's own: of V8, of the JVM
	// and its class library, of .NET, and of C that generates code for itself.
	runtimeFunction = regexp.MustCompile(`^(Builtin|BytecodeHandler|Stub|Handler|RegExp|wasm):|` +
		`^(StubRoutines|[\w ]*[Ii]nterpreter\b|[vi]table stub|call_stub|flush_icache_stub)|` +
		`Stub(s|Routines)?( \(\d+\))?$|[Bb]lob\b|` +
		`^([\w.$\[\]]+ )?(java|javax|jdk|sun|com\.sun|kotlin|scala|groovy\.lang)\.|` +
		`\[(System|Microsoft)\.[\w.]*\]|^\[`)
	sharedLibrary = regexp.MustCompile(`\.so(\.[0-9.]*)?( \(deleted\))?$`)
	interpreter   = regexp.MustCompile(`^(python|pypy|perl|ruby|node|nodejs|java|php|php-fpm|lua|` +
		`luajit|bash|dash|sh|zsh|R|Rscript|julia|beam\.smp|deno|bun|mono|dotnet|guile|tclsh)` +
		`(-?[0-9.]+[a-z]*)?( \(deleted\))?$`)
	libraryTemplate = regexp.MustCompile(
		`^([\w:]+(<[^()]*>)?[*& ]+)?<?(std|__gnu_cxx|boost|absl|alloc|core|hashbrown)::`)
)

// IsOwnModule reports whether a file of native code is the program's own, as IsOwnNative. The
// executable is, wherever it is installed.
func IsOwnModule(file string) bool {
	if !sharedLibrary.MatchString(file) && strings.HasPrefix(file, "/") {
		return !IsInterpreter(file) && !packageFolder.MatchString(file)
	}
	return !installedModule.MatchString(file)
}

// IsInterpreter reports whether an executable runs programs of another language.
func IsInterpreter(file string) bool { return interpreter.MatchString(path.Base(file)) }

// A Runtime runs programs of a language whose frames are not read from its memory. They have names
// only if the runtime lists its generated code.
type Runtime string

// The runtimes.
const (
	RuntimeNode   Runtime = "node"
	RuntimeDeno   Runtime = "deno"
	RuntimeJava   Runtime = "java"
	RuntimeDotnet Runtime = "dotnet"
	RuntimeErlang Runtime = "erlang"
	RuntimeJulia  Runtime = "julia"
	RuntimeLua    Runtime = "lua"
	RuntimePerl   Runtime = "perl"
	RuntimePHP    Runtime = "php"
	RuntimeR      Runtime = "r"
	RuntimeRuby   Runtime = "ruby"
)

// runtimeFiles are the programs and libraries of the runtimes, without folders.
var runtimeFiles = map[Runtime]*regexp.Regexp{
	RuntimeNode:   runtimeFile(`node|nodejs|libnode\.so`),
	RuntimeDeno:   runtimeFile(`deno`),
	RuntimeJava:   runtimeFile(`libjvm\.so`),
	RuntimeDotnet: runtimeFile(`libcoreclr\.so`),
	RuntimeErlang: runtimeFile(`beam\.smp`),
	RuntimeJulia:  runtimeFile(`libjulia(-internal|-codegen)?\.so`),
	RuntimeLua:    runtimeFile(`lua|luajit|liblua[-0-9.]*\.so|libluajit[-0-9.]*\.so`),
	RuntimePerl:   runtimeFile(`perl|libperl\.so`),
	RuntimePHP:    runtimeFile(`php|php-fpm|php-cgi|libphp[0-9.]*\.so`),
	RuntimeR:      runtimeFile(`libR\.so`),
	RuntimeRuby:   runtimeFile(`ruby|libruby[-0-9.]*\.so`),
}

// runtimeFile matches file names, with a version behind them.
func runtimeFile(names string) *regexp.Regexp {
	return regexp.MustCompile(`^(` + names + `)[-0-9.]*((beta|rc)[0-9]*)?( \(deleted\))?$`)
}

// RuntimeOf is the runtime that a file of native code belongs to; empty: none.
func RuntimeOf(file string) Runtime {
	for runtime, files := range runtimeFiles {
		if files.MatchString(path.Base(file)) {
			return runtime
		}
	}
	return ""
}

// wrapperName matches functions that do little but allocate, by the last part of their names:
// zmalloc_usable, Perl_safesysmalloc, _PyObject_Malloc, g_strdup. The constructors of strings and
// buffers are some: _sdsnewlen. Go's runtime has its own, which cgo calls by functions of C.
var wrapperName = regexp.MustCompile(`(?i)(alloc|allocate|memalign|strn?dup|memdup|get_?mem|` +
	`mem_?(get|new)|(arena|pool)_?(get|push|take)|(sds|str|string|buf|buffer|bytes)_?(try)?new(_?(len|size|from))*)` +
	`(_?(gc|n|0|1|2|x|ex|nn|raw|usable|internal|default|array|aligned?|zero(ed)?|huge|large|small|` +
	`impl|slow|fast|hook|nothrow|extended|string|bytes|chunk|from_?new_?block))*_*$|` +
	`^((runtime|internal/runtime/\w+)\.|x_cgo_)`)

// typeParameters of a name, and the mark of a namespace without one.
var typeParameters = regexp.MustCompile(`<[^<>]*>|\(anonymous namespace\)::`)

// allocationWrappers are the functions of IsAllocationWrapper.
var allocationWrappers = nameTest{ask: isAllocationWrapper}

// IsAllocationWrapper reports whether a native function does little but allocate for its caller, by
// its name.
func IsAllocationWrapper(function string) bool { return allocationWrappers.of(function) }

func isAllocationWrapper(function string) bool {
	if IsAllocatorFunction(function) || libraryTemplate.MatchString(function) {
		return true
	}
	for typeParameters.MatchString(function) {
		function = typeParameters.ReplaceAllString(function, "")
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(function, ByFramePointer), "(")
	return wrapperName.MatchString(strings.TrimSpace(name))
}

// maxNames bounds the names that a nameTest remembers.
const maxNames = 1 << 14

// A nameTest asks a question about a name once. A trace asks for the same names of functions again
// with each judgement, and an expression takes microseconds for each.
type nameTest struct {
	ask func(name string) bool

	mu      sync.Mutex
	answers map[string]bool
}

// of returns the answer for a name.
func (t *nameTest) of(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	answer, ok := t.answers[name]
	if ok {
		return answer
	}
	if t.answers == nil || len(t.answers) >= maxNames {
		t.answers = make(map[string]bool)
	}
	answer = t.ask(name)
	t.answers[name] = answer
	return answer
}
