package main

import (
	"strings"
	"testing"
)

func TestGrammarFaults(t *testing.T) {
	for comment, want := range map[string]string{
		"Age is that of the last.":                 "that of",
		"Ages are those\nof samples.":              "those of",
		"It counts that which stays.":              "that which",
		"It skips those whose age is 0, or Those.": "those whose",
		"It keeps those without a name.":           "those without",
		"Size is what is left of it.":              "is what is",
		"It sums what\nit has read.":               "sums what it",
		"A sum of what the kernel counts.":         "of what the",
		"One line. What stays is listed.":          "What stays",
		"What stays is listed.":                    "What stays",
		"It reads whatever wrote it.":              "reads whatever",
		"It asks whoever is there.":                "asks whoever",
		"One. Of libraries it keeps the last.":     "Of libraries it",

		"It decides what to do.":                    "",
		"What to do: nothing.":                      "",
		"It shows what is wrong.":                   "",
		"It is closed, so that of course it fails.": "",
		"It is read, whatever it is, and whoever.":  "",
		"Of two, the first counts.":                 "",
		"Those that end are left out.":              "",
	} {
		lines := strings.Split(comment, "\n")
		for path, text := range map[string]string{
			"a.go":  "package a\n// " + strings.Join(lines, "\n// ") + "\nvar s = \"that of\"\n",
			"b.h":   "int a;\n/* " + strings.Join(lines, "\n * ") + " */\nchar *s = \"/* that of */\";\n",
			"c.c":   "\n\tint a; // " + strings.Join(lines, "\n\t// ") + "\nchar c = '\"'; //\n",
			"d.sh":  "\n# " + strings.Join(lines, "\n# ") + "\necho that of ${a#those of}\n",
			"e/run": "#!/bin/bash\n# " + strings.Join(lines, "\n# ") + "\necho that of\n",
		} {
			fault := ""
			if want != "" {
				fault = path + ":2: \"" + want + "\" is a clause used as a noun: name the thing"
			}
			got := strings.Join(grammarFaults(source{path, text}), "\n")
			if got != fault {
				t.Errorf("%s, %q: got %q, want %q", path, comment, got, fault)
			}
		}
	}

	if got := grammarFaults(source{"a.py", "# that of the last\n"}); got != nil {
		t.Errorf("of another language: %q", got)
	}
	if got := grammarFaults(source{"a.sh", "\n\n# Is\n# it\n# that\n# of\n"}); len(got) != 1 ||
		!strings.HasPrefix(got[0], "a.sh:5:") {
		t.Errorf("over lines: %q", got)
	}
}
