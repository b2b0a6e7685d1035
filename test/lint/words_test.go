package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestFaultsIn(t *testing.T) {
	v, err := parseWords("# a comment\n\nspell*, spells\tprobe period\n" +
		"the attach\ttracing started\nhazard*\thazard rate\thazard rate, a hazard of\nHTTP ledger*\tx")
	tracertest.NoError(t, err)

	for text, want := range map[string]string{
		"a spell of rain":            "spell*",
		"Spells, and spells":         "spells spells",
		"type spellStart struct":     "spell*",
		"MAX_SPELL_COUNT":            "spell*",
		"RSSSpell":                   "spell*",
		"misspelled, spelling":       "",
		"spellsOf":                   "", // spells has no *
		"since the attach":           "the attach",
		"// since the\n\t// attach.": "the attach",
		" * since THE\n * ATTACH":    "the attach",
		"`the` attach":               "the attach",
		"the attacher; theAttach":    "",
		"the, attach":                "",
		"the. Attach":                "",
		"hazard":                     "hazard*",
		"hazardOf(age)":              "hazard*",
		"the hazard rate":            "",
		"a hazard of the kernel":     "",
		"type HazardRate float64":    "",
		"hazard_rate":                "",
		"myHTTPLedger":               "HTTP ledger*",
	} {
		var found []string
		for _, use := range v.find(piecesOf(text)) {
			found = append(found, use.spelling)
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}

	got := v.faultsIn(source{"old/spell.go", "one\n\ntwo spell\n@OUTPUT@ a@b.c @x@\n"})
	want := []string{
		`old/spell.go: the name has "spell*": say "probe period"`,
		`old/spell.go:3: spell*: say "probe period"`,
		`old/spell.go:4: @OUTPUT@ is a placeholder: fill it in`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseWords(t *testing.T) {
	for _, list := range []string{"spell", "spell\t", "\tprobe period", "a, , b\tc", "a\tb\tc\td"} {
		if _, err := parseWords(list); err == nil {
			t.Errorf("%q is accepted", list)
		}
	}
}
