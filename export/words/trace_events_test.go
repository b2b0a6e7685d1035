package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

func TestLoss(t *testing.T) {
	for want, loss := range map[string]growth.Loss{
		"frees not seen: the address was allocated again": {Kind: growth.LossMissedFree, Count: 2},
		"truncated stacks: too many frames": {
			Kind: growth.LossTruncatedStacks, Cause: "too many frames",
		},
		"a kind of a later version": {Kind: "a kind of a later version"},
	} {
		if got := Loss(loss); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for kind, text := range lossTexts {
		if !strings.Contains(text, " ") {
			t.Errorf("%s: %q", kind, text)
		}
	}
}
