package units

import (
	"math"
	"strconv"
	"strings"
)

// longestName bounds names, in bytes: what the target is called is its own choice.
const maxPrintableBytes = 300

// Printable makes a name of the target fit for a terminal: what is not printable becomes a question mark, and what is over 300 bytes
// is cut off.
func Printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
	if len(name) <= maxPrintableBytes {
		return name
	}
	return strings.ToValidUTF8(name[:maxPrintableBytes], "") + "…"
}

func Round(value float64) int64 { return int64(math.Round(value)) }
