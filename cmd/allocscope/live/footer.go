package live

import (
	"slices"
	"strings"
)

// footerLine says which keys do what, or what is being typed.
func footerLine(s *State, look Look, width int) string {
	switch {
	case look.Leaving:
		return bold("ending the trace") + dim("  Ctrl-C leaves at once, without the files")
	case look.Writing:
		return bold("mark: ") + left(safe(look.Draft)+"█", width-40) + dim("  Enter sets it  Esc cancels")
	case look.Help:
		return key("?", "back") + key("q", "quit and write")
	}
	keys := key("q", "quit and write") + key("m", "mark") + key("s", "sort: "+look.Order.String())
	if s.Device != nil {
		keys += key("g", map[bool]string{false: "device", true: "host"}[look.Device])
	}
	return keys + key("↑↓", "scroll") + key("?", "help")
}

func key(name, does string) string { return bold(name) + " " + dim(does) + "   " }

// helpOf is the help, with what is of use for device memory alone where there is any.
func helpOf(s *State) []string {
	if s.Device == nil {
		return helpLines
	}
	after := slices.IndexFunc(helpLines, func(line string) bool { return strings.HasPrefix(line, "  s  ") }) + 1
	return slices.Insert(slices.Clone(helpLines), after, deviceHelp)
}

const deviceHelp = "  g           show the stacks that hold device memory, or those of the host"

var helpLines = []string{
	"",
	"  q, Ctrl-C   end the trace, write the files and print the result;",
	"              Ctrl-C again leaves at once, without the files",
	"  m           mark this moment: type a text, Enter sets the mark, Esc does not",
	"  s           sort the stacks by rate, by bytes or by objects",
	"  ↑ ↓ k j     scroll the stacks by one; PgUp, PgDn by five; Home, End",
	"  ?           this help",
	"",
	"  What is judged while the trace runs is provisional: its result counts.",
	"  The chart is RSS so far; below it are the phases as judged, ▲ is a mark.",
	"  Stacks: what they gained a minute, and what they hold.",
	"  Bars: the change of each kind of memory; at the right is what it holds.",
	"  `allocscope trace --no-tui` prints plain lines instead.",
}
