package bundle

import (
	_ "embed"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
)

// pseudonyms replace private names, by rules for each sort of name.
type pseudonyms struct {
	*nameTable
	packages  map[string]bool // whose names stay
	libraries map[string]bool
}

func newPseudonyms(hide []string) *pseudonyms {
	return &pseudonyms{
		nameTable: newNameTable(hide), packages: make(map[string]bool),
		libraries: make(map[string]bool),
	}
}

// everywhere are names that programs of all users have.
var everywhere = set(`main _start __libc_start_main __libc_start_main_impl
__libc_start_call_main start_thread clone clone3 __clone __clone3 <module>
<lambda> <listcomp> <dictcomp> <setcomp> <genexpr> <locals> __main__ __init__
__new__ __call__ __del__ __enter__ __exit__ __getitem__ __setitem__ __iter__
__next__ __len__ __dict__ __globals__ __class__ __reduce__ __getstate__
__setstate__`)

func set(words string) map[string]bool { return setOf(strings.Fields(words)) }

func setOf(words []string) map[string]bool {
	found := make(map[string]bool)
	for _, word := range words {
		found[word] = true
	}

	return found
}

var offsetInFile = regexp.MustCompile(`^(.+)\+(0x[0-9a-f]+)$`)

// function returns the name of a function. Functions of public files keep their names, and so do
// the allocator's, by which pprof and allocscope recognise it.
func (n *pseudonyms) function(name string, isPublic bool) string {
	switch {
	case isPublic && !n.isHidden(name) && !strings.Contains(name, "/"):
		n.keep(name)
		return name
	case growth.IsAllocatorFunction(name) && plainFunction.MatchString(name):
		n.keep(name)
		return name
	}

	if found := offsetInFile.FindStringSubmatch(name); found != nil {
		if n.isKnownPublic(found[1]) || isWellKnown(found[1]) && !n.isHidden(found[1]) {
			return name
		}
		return n.fileName(found[1]) + "+" + found[2]
	}

	return n.qualified(name)
}

var plainFunction = regexp.MustCompile(`^[A-Za-z0-9_:]+( (new|delete)(\[\])?)?$`)

// qualified replaces each part of a name with dots: "Trainer.<locals>.step". A name of C++ is one
// part.
func (n *pseudonyms) qualified(name string) string {
	if everywhere[name] {
		return name
	}

	if strings.ContainsAny(name, " (:[") {
		return n.replace("name", name)
	}

	parts := strings.Split(name, ".")
	for i, part := range parts {
		if !everywhere[part] {
			parts[i] = n.replace("name", part)
		}
	}

	return strings.Join(parts, ".")
}

// packagesText has packages that many environments have installed, and whose names no program gives
// to a module of its own.
//
//go:embed packages.txt
var packagesText string

// builtinTypesText has the types of module builtins in CPython 3.11 and 3.13.
//
//go:embed types.txt
var builtinTypesText string

var (
	builtinTypes      = set(builtinTypesText)
	wellKnownPackages = set(packagesText)
)

// typeName returns the name of a Python type with its module.
func (n *pseudonyms) typeName(name string) string {
	name = strings.TrimPrefix(name, "'") // as objects.csv has it
	top, _, isQualified := strings.Cut(name, ".")
	switch {
	case n.isHidden(name):
	case !isQualified && builtinTypes[name], isQualified && n.isPackage(top):
		n.keep(name)
		return name
	}

	return n.qualified(name)
}

// ownModules are modules of Python's library that many programs have one of their own name for.
var ownModules = set(`calendar chunk cmd code parser platform profile queue
resource secrets select site stat statistics symbol test this token trace
types`)

// isPackage is true of the name of a public Python package or module.
func (n *pseudonyms) isPackage(name string) bool {
	isStandard := standardLibrary[name] && !ownModules[name]
	return (isStandard || wellKnownPackages[name] || n.packages[name]) && !n.isHidden(name)
}

// builtinComponents are the components of allocscope's own rules.
var builtinComponents = sync.OnceValue(func() map[string]bool {
	return set(strings.Join(component.DefaultRules().Names(), " "))
})

// component returns the name of a component: one of allocscope's own, or a package, script or
// library.
func (n *pseudonyms) component(name string) string {
	switch {
	case builtinComponents()[name], n.isPackage(name), isWellKnown(name):
		if !n.isHidden(name) {
			n.keep(name)
			return name
		}
	}

	return n.fileName(name)
}

var wellKnownCommand = regexp.MustCompile(
	`^(python[0-9.]*[td]?|pt_(main_thread|data_worker|data_pin)|torchrun|accelerate|mpirun|srun|bash|sh)$`,
)

// command returns the name of a process: its short name, or its interpreter and its script.
func (n *pseudonyms) command(name string) string {
	program, script, hasScript := strings.Cut(name, " ")
	if !wellKnownCommand.MatchString(program) || n.isHidden(program) {
		return n.replace("process", name)
	}

	n.keep(program)
	if !hasScript {
		return name
	}

	switch {
	case strings.ContainsAny(script, separators):
		return program + " " + n.argument(script)
	case strings.Contains(script, "/"):
		return program + " " + n.path(script)
	}
	return program + " " + n.component(script)
}

var (
	knownSuffix = regexp.MustCompile(
		`(\.(cpython|abi|pypy)[-\w]*)?(\.so(\.[0-9]+)*|` +
			`\.(py|pyc|pyx|c|cc|cpp|cxx|h|hh|hpp|cu|cuh|rs|go|S|sh|` +
			`json|yaml|toml|txt|log|csv|bin|dat|db|arrow|parquet|npy|npz|h5|tar|zip|gz|zst|` +
			`pt|pth|ckpt|safetensors|idx|mmap|lmdb|jpg|png))$`,
	)
	plainPart = set(`__init__ __main__ allocscope`)
)

// fileName replaces the name of a file without directories, and keeps a suffix that many files
// have.
func (n *pseudonyms) fileName(name string) string {
	suffix := knownSuffix.FindString(name)
	stem := strings.TrimSuffix(name, suffix)
	if stem == "" || plainPart[stem] {
		return name
	}

	if suffix == "" && path.Ext(name) != "" {
		return n.replace("file", name)
	}

	return n.replace("name", stem) + suffix
}
