// Package sourcecode reads the Python source of a program, and finds variables to which it only
// adds: no code reads them, removes from them or replaces them. Code that the package does not
// understand counts as a use. The source is hostile input: any contents cost bounded work.
package sourcecode

import (
	"regexp"
	"slices"
	"strings"
)

// A Program is the source of a program without the libraries that are installed.
type Program struct {
	files []file
}

// A file is a file of source that was read when it was first needed.
type file struct {
	path, text string
	statements []*statement
	isRead, ok bool
}

// Add adds the text of a file.
func (p *Program) Add(path, text string) {
	p.files = append(p.files, file{path: path, text: text})
}

// A Scope is where a variable lives.
type Scope int

// Scopes.
const (
	Global    Scope = iota // a global of a module
	Attribute              // an attribute of an object or of a class
	Closure                // a variable of a function that has returned, kept by an inner function
)

// A Variable is a name in a program. File is where a global is defined, and Owner the name of the
// function with the variable of a closure.
type Variable struct {
	Scope       Scope
	Name        string
	File, Owner string
}

// IsOnlyAddedTo reports whether all uses of a variable add something to it, but for one definition
// that makes it new and runs once.
func (p *Program) IsOnlyAddedTo(v Variable) bool {
	definitions, isOnly := 0, true

	ok := p.each(v.Name, func(f *file, s *statement, at int) {
		switch {
		case v.Scope == Attribute && !s.is(at-1, ".") && !v.isDefined(s, at):
		case v.isDefined(s, at) && (v.Scope != Global || f.path == v.File):
			definitions++
			isOnly = isOnly && isNew(s, at)
		default:
			isOnly = isOnly && (isAddition(s, at) || isDeclared(s, at))
		}
	})

	return ok && isOnly && definitions == 1
}

// IsSetOnce reports whether a variable has one definition that runs once, and is never set or
// deleted otherwise. It may be used.
func (p *Program) IsSetOnce(v Variable) bool {
	definitions, isOnly := 0, true
	ok := p.each(v.Name, func(f *file, s *statement, at int) {
		isOwn := v.Scope == Attribute || f.path == v.File || s.is(at-1, ".")

		switch {
		case v.isDefined(s, at) && isOwn:
			definitions++
		case v.Scope == Attribute && !s.is(at-1, "."):
		case isOwn && isSet(s, at):
			isOnly = false
		}
	})
	return ok && isOnly && definitions == 1
}

// reflection are names of Python by which code gets at a variable without its name.
var reflection = []string{
	"globals", "locals", "vars", "eval", "exec", "getattr", "setattr", "delattr", "__dict__",
	"__getattribute__", "get_objects", "get_referrers", "pickle", "cloudpickle", "dill", "joblib",
	"deepcopy", "asdict",
}

// each calls a function with each place of a name. It returns false where a file with the name
// cannot be read, or has code that may get at the variable in another way.
func (p *Program) each(name string, do func(f *file, s *statement, at int)) bool {
	if name == "" {
		return false
	}

	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for i := range p.files {
		f := &p.files[i]
		if !strings.Contains(f.text, name) {
			continue
		}
		if !f.read() {
			return false
		}

		for _, s := range f.statements {
			for at, t := range s.tokens {
				switch {
				case t.kind == kindName && slices.Contains(reflection, t.text),
					t.kind == kindString && t.text == name,
					t.kind == kindFormat && word.MatchString(t.text):
					return false
				case t.kind == kindName && t.text == name:
					do(f, s, at)
				}
			}
		}
	}
	return true
}

// read scans a file once.
func (f *file) read() bool {
	if !f.isRead {
		f.statements, f.ok = scan(f.text)
		f.isRead = true
	}
	return f.ok
}

// isDefined reports whether a statement sets a variable where it runs once: in the body of the
// module, of a class or of __init__, of a closure in the body of its function.
func (v Variable) isDefined(s *statement, at int) bool {
	if assigned(s, at) < 0 {
		return false
	}

	switch v.Scope {
	case Global:
		return at == 0 && s.parent == nil
	case Closure:
		return at == 0 && s.parent != nil && s.parent.startsWith("def") && s.parent.has(v.Owner)
	}
	isOfClass := at == 0 && s.parent != nil && s.parent.startsWith("class") &&
		s.parent.parent == nil
	isOfObject := at == 2 && s.is(0, "self") && s.is(1, ".") && s.parent != nil &&
		s.parent.startsWith("def") && s.parent.has("__init__")
	return isOfClass || isOfObject
}

// has reports whether a statement has a name.
func (s *statement) has(name string) bool {
	return slices.Contains(s.tokens, token{kindName, name})
}

// assigned is the place of the value that a statement assigns to the name at a place, which may
// have an annotation; -1: it assigns nothing to the name.
func assigned(s *statement, at int) int {
	next := at + 1
	if s.is(next, ":") {
		for next < len(s.tokens) && !s.is(next, "=") {
			next++
		}
	}

	if !s.is(next, "=") || next+1 >= len(s.tokens) {
		return -1
	}
	return next + 1
}

// makers are the types whose call makes a new container.
var makers = []string{"list", "dict", "deque", "defaultdict", "OrderedDict"}

// isNew reports whether a definition assigns a new container.
func isNew(s *statement, at int) bool {
	from := assigned(s, at)

	if s.is(from, "collections") && s.is(from+1, ".") {
		from += 2
	}
	if slices.Contains(makers, s.tokens[from].text) && s.is(from+1, "(") {
		from++
	} else if !s.is(from, "[") && !s.is(from, "{") {
		return false
	}

	end, _ := s.match(from)
	return end == len(s.tokens)-1
}

// match is the place of the bracket that closes the one at a place, and whether a colon is between
// them, at their own depth; -1: there is none.
func (s *statement) match(from int) (end int, hasColon bool) {
	depth := 0
	for i := from; i < len(s.tokens); i++ {
		t := s.tokens[i]
		switch {
		case t.kind != kindOther:
		case strings.Contains("([{", t.text):
			depth++
		case strings.Contains(")]}", t.text):
			if depth--; depth == 0 {
				return i, hasColon
			}
		case t.text == ":" && depth == 1:
			hasColon = true
		}
	}
	return -1, false
}

// adders are the methods of containers that add, and neither read nor remove.
var adders = []string{"append", "appendleft", "extend", "add", "update"}

// isAddition reports whether a use adds to a container: by a method, by an item or by +=.
func isAddition(s *statement, at int) bool {
	switch {
	case s.is(at+1, "."):
		return at+2 < len(s.tokens) && slices.Contains(adders, s.tokens[at+2].text) && s.is(at+3, "(")
	case s.is(at+1, "["):
		end, isSlice := s.match(at + 1)
		return end > 0 && !isSlice && s.is(end+1, "=")
	}
	return s.is(at+1, "+=")
}

// isDeclared reports whether a use only declares or imports a name under itself.
func isDeclared(s *statement, at int) bool {
	return s.startsWith("global", "nonlocal", "from", "import") && !s.is(at+1, "as") &&
		!s.is(at+1, ".")
}

// isSet reports whether a statement sets or deletes a name: by an assignment, in a loop, by with or
// del, or as a global of a function.
func isSet(s *statement, at int) bool {
	if s.startsWith("global", "nonlocal", "del") {
		return true
	}

	for before := at - 1; before >= 0 && (s.is(before, ".") || s.is(before, ",") ||
		s.is(before, "(") || s.tokens[before].kind == kindName); before-- {
		if s.is(before, "for") || s.is(before, "as") {
			return true
		}
	}

	isArgument := s.depthAt(at) > 0 // the keyword of a call
	return s.is(at+1, ":=") || !isArgument && (assigned(s, at) >= 0 || s.is(at+1, ","))
}

// depthAt is the number of brackets around a place.
func (s *statement) depthAt(at int) (depth int) {
	for _, t := range s.tokens[:at] {
		switch {
		case t.kind != kindOther:
		case strings.Contains("([{", t.text):
			depth++
		case strings.Contains(")]}", t.text):
			depth--
		}
	}
	return depth
}
