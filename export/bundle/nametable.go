package bundle

import (
	"path"
	"regexp"
	"slices"
	"strconv"
)

// maxNameBytes bounds the names that are remembered. Further private ones get the same pseudonym,
// and further public ones are replaced in rows of a breakdown.
const maxNameBytes = 64 << 20

// A nameTable has the names that were met. A private one has a pseudonym: a word for the kind of
// name, and a number in the order in which the names were met. A name has the same pseudonym
// everywhere in a bundle. Nothing of the name is in it, not even a hash, which could be guessed.
type nameTable struct {
	pseudonyms map[string]string
	counts     map[string]int
	public     map[string]bool   // names that were met in public places
	hidden     map[string]string // names that look public and, says the user, are not, by topName
	found      map[string]bool   // of hidden: was met
	bytes      int               // of the names above, and of listed ones
}

func newNameTable(hide []string) *nameTable {
	n := &nameTable{
		pseudonyms: make(map[string]string), counts: make(map[string]int),
		public: make(map[string]bool), hidden: make(map[string]string), found: make(map[string]bool),
	}

	for _, name := range hide {
		n.hidden[topName(path.Base(name))] = name
	}

	return n
}

// replace returns the pseudonym of a private name. Kind is the word that it begins with if the name
// was not met before.
func (n *nameTable) replace(kind, name string) string {
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
func (n *nameTable) keep(name string) {
	if !n.public[name] && n.hasRoom(name) {
		n.public[name] = true
	}
}

// hasRoom counts a new name, unless there are too many.
func (n *nameTable) hasRoom(name string) bool {
	const entryBytes = 64 // of the tables, for each name
	if n.bytes+len(name)+entryBytes > maxNameBytes {
		return false
	}
	n.bytes += len(name) + entryBytes
	return true
}

// list adds a name to those that are reported.
func (n *nameTable) list(names map[string]bool, name string) {
	if !names[name] && n.hasRoom(name) {
		names[name] = true
	}
}

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
func (n *nameTable) isHidden(name string) bool {
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
func (n *nameTable) unknownHidden() (unknown []string) {
	for top, name := range n.hidden {
		if !n.found[top] {
			unknown = append(unknown, name)
		}
	}

	slices.Sort(unknown)
	return unknown
}

// isKnownPublic reports whether a name was met in public places only.
func (n *nameTable) isKnownPublic(name string) bool {
	_, isPrivate := n.pseudonyms[name]
	return n.public[name] && !isPrivate && !n.isHidden(name)
}
