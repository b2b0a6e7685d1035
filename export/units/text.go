package units

import "github.com/allocscope/allocscope/growth"

// maxNameBytes bounds names for people: the target chooses its own names.
const maxNameBytes = 300

// Name makes a name of the target fit for people: printable, and truncated after 300 bytes.
func Name(name string) string {
	return growth.Truncate(growth.Printable(name), maxNameBytes)
}

// maxCommandRunes bounds how much of a command line is quoted.
const maxCommandRunes = 60

// Command is a command line in printable characters, shortened.
func Command(text string) string {
	text = Name(text)
	if runes := []rune(text); len(runes) > maxCommandRunes {
		return string(runes[:maxCommandRunes-1]) + "…"
	}
	return text
}
