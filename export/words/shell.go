package words

import (
	"regexp"
	"strings"
)

// unquotedWord matches words that no shell expands. "a=b" is an assignment unless it follows a
// dash.
var unquotedWord = regexp.MustCompile(`^[0-9A-Za-z/._+:,@-]+$|^-[0-9A-Za-z/._+:,@=-]+$`)

// ShellQuote quotes a word where a shell would expand it.
func ShellQuote(word string) string {
	if unquotedWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// CommandLine joins arguments to a command that can be pasted into a shell.
func CommandLine(arguments []string) string {
	quoted := make([]string, len(arguments))
	for i, argument := range arguments {
		quoted[i] = ShellQuote(argument)
	}
	return strings.Join(quoted, " ")
}
