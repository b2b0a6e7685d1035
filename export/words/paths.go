package words

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth/keeper"
)

// arrow leads from a container to its content.
const arrow = " -> "

// KeeperPath is a path as code: "train.cache (dict, 10,512 entries, +461/min) -> Image ->
// ImagingCore -> buffer".
func KeeperPath(p keeper.Path) string {
	return containerText(&p) + strings.Join(restOf(&p), "")
}

// KeeperHead is the variable of a path, the first container that grows and its content, in so many
// characters: "train.cache (dict, 10,512 entries, +461/min) -> Image". The content is left out
// first; then the functions around a function go, and the middle of the variable.
func KeeperHead(p keeper.Path, width int) string {
	text := containerText(&p)
	if rest := restOf(&p); len(rest) > 0 && utf8.RuneCountInString(text+rest[0]) <= width {
		return text + rest[0]
	}
	if utf8.RuneCountInString(text) <= width {
		return text
	}

	p.Root.Owner = shortOwner(p.Root.Owner)
	if text = containerText(&p); utf8.RuneCountInString(text) <= width {
		return text
	}
	if p.Root.IsCall() { // the function says where it is
		p.Root.File = ""
		if text = containerText(&p); utf8.RuneCountInString(text) <= width {
			return text
		}
	}
	about := strings.TrimPrefix(text, KeeperVariable(p))
	room := width - utf8.RuneCountInString(about)
	const least = 24 // characters of a variable
	if room < least {
		about, room = "", width
	}
	return middleCut(KeeperVariable(p), room) + about
}

// shortOwner is the name of a function without the functions and classes around it.
func shortOwner(owner string) string { return owner[strings.LastIndexByte(owner, '.')+1:] }

// containerText is the variable of a path, and the object to which it leads.
func containerText(p *keeper.Path) string {
	text := KeeperVariable(*p)
	if about := linkText(p.Links, containerOf(p)); about != "" {
		text += " (" + about + ")"
	}
	return text
}

// KeeperVariable is the variable of a path, with the attributes and keys that lead to the first
// container that grows: "train.state.history['loss']". Where none is known to grow, they lead to
// the first whose entries differ.
func KeeperVariable(p keeper.Path) string {
	access := ""
	for _, l := range p.Links[min(1, len(p.Links)) : containerOf(&p)+1] {
		access += accessText(l)
	}
	return variableText(p.Root, access)
}

// containerOf is the index of the link that the variable and its attributes lead to; -1: there is
// no link.
func containerOf(p *keeper.Path) int {
	if at := p.GrowingLink(); at >= 0 {
		return at
	}

	at := min(0, len(p.Links)-1)
	isNamed := func(l keeper.Link) bool { return l.Name != "" || len(l.Names) > 0 }
	for i := 1; i < len(p.Links) && isNamed(p.Links[i]) && !p.Links[i].Repeated; i++ {
		at = i
	}
	// A container that does not grow is passed over: the containers in it do.
	for at >= 0 && p.Links[at].Steady && at+1 < len(p.Links) && p.Links[at+1].IsContainer() {
		at++
	}
	return at
}

// accessText is how code refers to an object from the one before.
func accessText(l keeper.Link) string {
	text := ""
	switch l.How {
	case keeper.HowAttribute:
		text = "." + l.Name
		if l.Name == "" {
			text = ".*"
		}
	case keeper.HowItem, keeper.HowValue:
		text = "[" + l.Name + "]"
		switch {
		case len(l.Names) > 0:
			text = "[" + strings.Join(l.Names, "] and [") + "]"
		case l.Name == "":
			text = "[...]"
		}
	case keeper.HowKey, keeper.HowElement:
		text = "{...}"
	case keeper.HowClosure, keeper.HowDefault, keeper.HowLocal:
		text = "." + l.Name
		if l.Name == "" {
			text = ""
		}
	}
	if l.Repeated {
		text += "..."
	}
	return text
}

// restOf are the links behind the container, those that repeat once.
func restOf(p *keeper.Path) []string {
	var rest []string
	last := len(p.Links) - 1
	for i := containerOf(p) + 1; i <= last; i++ {
		text := arrow + typeText(p.Links[i], i == last)
		if p.Links[i].Repeated {
			text += arrow + "..."
		}
		rest = append(rest, text)
	}
	return rest
}

// linkText describes an object: "dict, 10,512 entries, +461/min", or "+41 in 5.3s" of a short time.
func linkText(links []keeper.Link, at int) string {
	if at < 0 {
		return ""
	}
	l := links[at]
	text := typeText(l, at == len(links)-1)
	if n := len(l.Names); n > 1 {
		text = fmt.Sprintf("%d %ss", n, text)
	}
	if l.Entries >= 0 {
		text += ", " + units.Thousands(int64(l.Entries))
		if l.Limit > 0 {
			text += " of at most " + units.Thousands(l.Limit)
		}
		text += " entries"
		if l.Entries == 1 && l.Limit == 0 {
			text = strings.TrimSuffix(text, "entries") + "entry"
		}
	}
	switch {
	case l.PerMinute > 0 && isBrief(l.GrowthS):
		text += fmt.Sprintf(", +%s in %s", units.Thousands(units.Round(l.PerMinute/60*l.GrowthS)),
			lengthText(l.GrowthS, false))
	case l.PerMinute > 0:
		text += ", " + units.PerMinute(l.PerMinute)
	}
	return text
}

// isBrief is true of two readings of a container that are too near to each other, in seconds, for a
// rate by the minute: the program may have been slower just then. 0: the time is not known.
func isBrief(length float64) bool { return 0 < length && length < 10 }

// typeText is the name of a type without its module. Memory without a type is a buffer where it is
// the kept memory itself, else a chunk of malloc.
func typeText(l keeper.Link, isLast bool) string {
	switch {
	case l.Type != "":
		return shortType(l.Type)
	case isLast || l.TypeSize == 0:
		return "buffer"
	}
	return "chunk of " + units.Bytes(float64(l.TypeSize))
}

// shortType is the name of a type without its module and the function around it: "Image".
func shortType(name string) string {
	short := name[strings.LastIndexByte(name, '.')+1:]
	if short == "" {
		return name
	}
	return short
}

// variableText is a variable, with the reference that leads on from it.
func variableText(r keeper.Root, access string) string {
	switch r.Kind {
	case keeper.RootGlobal:
		return moduleText(r) + "." + r.Name + access
	case keeper.RootClass:
		return moduleText(r) + "." + r.Owner + "." + r.Name + access
	case keeper.RootLocal:
		return "local " + r.Name + access + " of " + ownerText(r) + sourceText(r)
	case keeper.RootGenerator, keeper.RootCoroutine:
		return "local " + r.Name + access + " of " + string(r.Kind) + " " + ownerText(r) + sourceText(r)
	case keeper.RootClosure:
		return "closure variable " + r.Name + access + " of " + ownerText(r)
	case keeper.RootDefault:
		return "default argument " + r.Name + access + " of " + ownerText(r)
	case keeper.RootCache:
		return "lru_cache of " + ownerText(r) + access
	case keeper.RootThread:
		return "local or thread-local variable of native thread " + r.Name
	case keeper.RootStatic:
		return staticText(r)
	case keeper.RootCycle:
		return "a C++ cycle around " + shortType(r.Name) + ", no variable"
	}
	return r.Name + access
}

// moduleText is the name of a module; the program has the stem of its file.
func moduleText(r keeper.Root) string {
	if r.Module != "__main__" || r.File == "" {
		return r.Module
	}
	base := filepath.Base(r.File)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

func ownerText(r keeper.Root) string { return r.Owner + "()" }

// sourceText is where a function stands: " (train.py:40)".
func sourceText(r keeper.Root) string {
	if r.File == "" {
		return ""
	}
	text := filepath.Base(r.File)
	if r.Line > 0 {
		text += ":" + strconv.Itoa(r.Line)
	}
	return " (" + text + ")"
}

// staticText is a static variable: "libfoo.so: table+0x10", or "libfoo.so+0x4010" without a symbol.
func staticText(r keeper.Root) string {
	text := filepath.Base(r.Module)
	if r.Name != "" {
		text += ": " + r.Name
	}
	if r.Offset > 0 || r.Name == "" {
		text += fmt.Sprintf("+%#x", r.Offset)
	}
	return text
}
