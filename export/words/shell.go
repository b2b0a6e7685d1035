package words

import (
	"regexp"
	"strings"
)

// plainWord is what no shell takes for anything else; an assignment is one only behind a dash.
var unquotedWord = regexp.MustCompile(`^[0-9A-Za-z/._+:,@-]+$|^-[0-9A-Za-z/._+:,@=-]+$`)

// ShellQuote makes a word safe to paste into a shell.
func ShellQuote(word string) string {
	if unquotedWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// CommandLine is a command that can be pasted into a shell.
func CommandLine(arguments []string) string {
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		quoted[i] = ShellQuote(argument)
	}
	return strings.Join(quoted, " ")
}
