package trace

import (
	"strings"
	"testing"
)

// mustSay checks that a text has all words.
func mustSay(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s does not say %q:\n%s", where, word, text)
		}
	}
}
