package bundle

import (
	_ "embed"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/component"
)

// maxNameBytes bounds the names that are remembered. Further private ones get the same pseudonym,
// and further public ones are replaced in rows of a breakdown.
const maxNameBytes = 64 << 20

// pseudonyms replace private names: a word for the kind of name, and a number in the order in which
// the names were met. A name has the same pseudonym everywhere in a bundle. Nothing of the name is
// in it, not even a hash, which could be guessed.
type pseudonyms struct {
	pseudonyms map[string]string
	counts     map[string]int
	public     map[string]bool   // names that were met in public places
	hidden     map[string]string // names that look public and, says the user, are not, by topName
	found      map[string]bool   // of hidden: was met
	packages   map[string]bool   // whose names stay
	libraries  map[string]bool
	own        map[string]bool // allocscope's commands and flags
	bytes      int             // of the names above
}

func newPseudonyms(hide, own []string) *pseudonyms {
	n := &pseudonyms{
		pseudonyms: make(map[string]string), counts: make(map[string]int),
		public: make(map[string]bool), hidden: make(map[string]string), found: make(map[string]bool),
		packages: make(map[string]bool), libraries: make(map[string]bool), own: setOf(own),
	}

	for _, name := range hide {
		n.hidden[topName(path.Base(name))] = name
	}

	return n
}

// replace returns the pseudonym of a private name. Kind is the word that it begins with if the name
// was not met before.
func (n *pseudonyms) replace(kind, name string) string {
	if name == "" {
		return ""
	}

	if pseudonym, ok := n.pseudonyms[name]; ok {
		return pseudonym
	}

	if !n.hasRoom(name) {
		return kind + "-more"
	}

	n.counts[kind]++
	pseudonym := kind + "-" + strconv.Itoa(n.counts[kind])
	n.pseudonyms[name] = pseudonym
	return pseudonym
}

// keep remembers a name from a public place.
func (n *pseudonyms) keep(name string) {
	if !n.public[name] && n.hasRoom(name) {
		n.public[name] = true
	}
}

// hasRoom counts a new name, unless there are too many.
func (n *pseudonyms) hasRoom(name string) bool {
	const entryBytes = 64 // of the tables, for each name
	if n.bytes+len(name)+entryBytes > maxNameBytes {
		return false
	}
	n.bytes += len(name) + entryBytes
	return true
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

// nameEnd is where a name's first part ends: at a dot, or at a version.
var nameEnd = regexp.MustCompile(`[.]|-v?[0-9]`)

// topName is the first part of a name, which is printed and which --hide has: "acme" of
// "acme-1.0-py3.11.egg", "libacme" of "libacme.so.3".
func topName(name string) string {
	first := min(1, len(name))
	if end := nameEnd.FindStringIndex(name[first:]); end != nil {
		return name[:first+end[0]]
	}

	return name
}

// isHidden is true of texts that the user called private.
func (n *pseudonyms) isHidden(name string) bool {
	if len(n.hidden) == 0 {
		return false
	}

	top := topName(name)
	_, isHidden := n.hidden[top]
	if isHidden {
		n.found[top] = true
	}

	return isHidden
}

// unknownHidden returns the names that the user called private, and that nothing has.
func (n *pseudonyms) unknownHidden() (unknown []string) {
	for top, name := range n.hidden {
		if !n.found[top] {
			unknown = append(unknown, name)
		}
	}

	slices.Sort(unknown)
	return unknown
}

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
var builtinComponents = set(strings.Join(component.DefaultRules().Names(), " "))

// component returns the name of a component: one of allocscope's own, or a package, script or
// library.
func (n *pseudonyms) component(name string) string {
	switch {
	case builtinComponents[name], n.isPackage(name), isWellKnown(name):
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

// fileName replaces the name of a file without directories, and keeps a suffix that many files have.
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
