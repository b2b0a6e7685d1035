package units

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPrintableBytes bounds names for people: the target chooses its own names.
const maxPrintableBytes = 300

// Printable makes a name of the target fit for a terminal. A question mark replaces each character
// that is not printable. The name is truncated after 300 bytes.
func Printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))

	return Truncate(name, maxPrintableBytes)
}

// Truncate cuts a text after the last character that ends within limit bytes, and appends an
// ellipsis where it cut anything.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
