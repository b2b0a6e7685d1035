package export

import (
	"strconv"
	"strings"
)

// longestName bounds names, in bytes: what the target is called is its own choice.
const longestName = 300

// Printable makes a name of the target fit for a terminal: what is not printable becomes a question mark, and what is over 300 bytes
// is cut off.
func Printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	if len(name) <= longestName {
		return name
	}
	return strings.ToValidUTF8(name[:longestName], "") + "…"
}
