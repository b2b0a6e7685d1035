package series

import (
	"bytes"
	"iter"
)

// A word of a label, as it is and taken apart.
type word struct {
	text string
	name
}

// words of the label: "memory", "rss_mb".
func (r reading) words() iter.Seq[word] {
	return func(yield func(word) bool) {
		for _, text := range bytes.FieldsFunc(r.label, func(c rune) bool { return !isWord(c) }) {
			if !yield(word{string(text), nameOf(string(text))}) {
				return
			}
		}
	}
}

func isWord(c rune) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

const maxReadings = 64 // in a line: more is not for people

// readings finds the numbers in a line of text, and the time that it begins with.
func readings(line []byte) (all []reading) {
	text := bytes.TrimLeft(line, " \t[(")
	if n := stampLength(text); n > 0 {
		all, text = append(all, reading{cell: text[:n], stamp: true}), text[n:]
	}
	label := 0
	for i := 0; i < len(text) && len(all) < maxReadings; {
		if i > 0 && isWord(rune(text[i-1])) || !isDigit(text[i]) {
			if bytes.IndexByte([]byte(",;|{}[]"), text[i]) >= 0 {
				label = i + 1
			}
			i++
			continue
		}
		length := cellLength(text[i:])
		start := i
		if i > 0 && text[i-1] == '-' && (i == 1 || !isWord(rune(text[i-2]))) {
			start--
		}
		all = append(all, reading{label: text[label:start], cell: text[start : i+length]})
		i += length
		label = i
	}
	return all
}

// stampLength is the length of a date with its time of day, of a time of day, or of seconds since 1970; 0: there is none.
func stampLength(text []byte) int {
	if value, n := number(text); value >= epoch && value < 1e11 && (n == len(text) || !isWord(rune(text[n]))) {
		return n
	}
	end := 0
	if isDate(text) {
		end = 11
	}
	if len(text) < end+8 || text[end+2] != ':' || text[end+5] != ':' || !isDigit(text[end]) {
		return 0
	}
	for end += 8; end < len(text) && (isDigit(text[end]) || text[end] == '.' || text[end] == ','); {
		end++
	}
	if end < len(text) && text[end] == 'Z' {
		return end + 1
	}
	if zone := text[end:]; len(zone) >= 6 && (zone[0] == '+' || zone[0] == '-') && zone[3] == ':' {
		return end + 6
	}
	return len(bytes.TrimRight(text[:end], ".,"))
}

// cellLength is the length of a number with the unit behind it, a space between them allowed.
func cellLength(text []byte) int {
	_, n := number(text)
	end := n
	if end < len(text) && text[end] == ' ' {
		end++
	}
	word := end
	for end < len(text) && isWord(rune(text[end])) {
		end++
	}
	_, size := unitAt(text[word:end], sizeUnits)
	_, duration := unitAt(text[word:end], timeUnits)
	if end > word && (size || duration) {
		return end
	}
	return n
}
