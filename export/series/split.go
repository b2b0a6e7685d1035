package series

import (
	"bytes"
	"strings"
)

// blanks as a delimiter stands for any number of spaces and tabs.
const blanks = 0

var delimiters = []byte{'\t', ';', ',', blanks}

// split appends the cells of a line to cells, without the spaces and quotation marks around them.
func split(cells [][]byte, line []byte, delimiter byte) [][]byte {
	if delimiter == blanks {
		return splitBlanks(cells, line)
	}
	for {
		end := bytes.IndexByte(line, delimiter)
		if start := bytes.IndexByte(line, '"'); start >= 0 && (end < 0 || start < end) {
			end = closing(line, start, delimiter)
		}
		if end < 0 {
			return append(cells, bare(line))
		}
		cells = append(cells, bare(line[:end]))
		line = line[end+1:]
	}
}

// closing is where the cell ends that has a quotation mark at start, -1 if the line ends first.
func closing(line []byte, start int, delimiter byte) int {
	quoted := false
	for i := start; i < len(line); i++ {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == delimiter && !quoted:
			return i
		}
	}
	return -1
}

func bare(cell []byte) []byte {
	if n := len(cell); n > 0 && cell[0] > '"' && cell[n-1] > '"' {
		return cell
	}
	cell = bytes.TrimSpace(cell)
	if n := len(cell); n > 1 && cell[0] == '"' && cell[n-1] == '"' {
		cell = bytes.TrimSpace(cell[1 : n-1])
	}
	return cell
}

// splitBlanks keeps a date and its time of day together.
func splitBlanks(cells [][]byte, line []byte) [][]byte {
	for i := 0; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		start := i
		for i < len(line) && !isBlank(line[i]) {
			i++
		}
		if i-start == 10 && isDate(line[start:i]) && i+3 < len(line) && line[i+3] == ':' {
			for i++; i < len(line) && !isBlank(line[i]); {
				i++
			}
		}
		cells = append(cells, line[start:i])
	}
	return cells
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// splitNames gives the names in a header, count of them if that is possible: between blanks, names may hold single spaces.
func splitNames(header []byte, delimiter byte, count int) []string {
	var names []string
	if delimiter != blanks {
		for _, cell := range split(nil, header, delimiter) {
			names = append(names, string(cell))
		}
		return names
	}
	for part := range strings.SplitSeq(string(header), "  ") {
		if part = strings.TrimSpace(part); part != "" {
			names = append(names, part)
		}
	}
	if len(names) == count {
		return names
	}
	return joinUnits(strings.Fields(string(header)))
}

// joinUnits puts a unit in brackets back to its name: "rss", "(KiB)".
func joinUnits(words []string) (names []string) {
	for _, word := range words {
		if len(names) > 0 && word[0] == '(' {
			names[len(names)-1] += " " + word
			continue
		}
		names = append(names, word)
	}
	return names
}
