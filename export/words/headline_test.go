package words

import "testing"

func TestAHeadlineIsANameAndWhatIsSaidOfIt(t *testing.T) {
	for headline, want := range map[string][2]string{
		"LEAK: grows by 60 MiB/min, steady growth":       {"LEAK", "grows by 60 MiB/min, steady growth"},
		"LEAK SUSPECTED: grows":                          {"LEAK SUSPECTED", "grows"},
		"GROWING, too early to tell: by 1 MiB/min":       {"GROWING, too early to tell", "by 1 MiB/min"},
		"NO LEAK (spiky plateau): no growth is seen":     {"NO LEAK (spiky plateau)", "no growth is seen"},
		"WRONG PROCESS? it explains 3 %; python (PID 7)": {"WRONG PROCESS?", "it explains 3 %; python (PID 7)"},
		"TOO SHORT to tell":                              {"TOO SHORT", "to tell"},
		"TOO SHORT: too noisy":                           {"TOO SHORT", "too noisy"},
		"something else":                                 {"something else", ""},
	} {
		if name, sentence := SplitHeadline(headline); name != want[0] || sentence != want[1] {
			t.Errorf("%q is %q and %q", headline, name, sentence)
		}
	}
}
