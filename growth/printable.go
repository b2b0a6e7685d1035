package growth

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes a text of the target fit for a terminal and a file format: a question mark
// replaces each byte that is not UTF-8 and each character that is not printable (unicode.IsPrint),
// control characters among them.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// maxDetailBytes bounds the text of an error in a result.
const maxDetailBytes = 200

// Detail is the text of an error of no known kind, for a result: printable, and bounded.
func Detail(text string) string { return Truncate(Printable(text), maxDetailBytes) }

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
