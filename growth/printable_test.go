package growth

import "testing"

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"train.py": "train.py", "a\x1b[31mb\n": "a?[31mb?", "a\xff\xfeb": "a??b", "\u202eexe": "?exe",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTruncate(t *testing.T) {
	for limit, want := range []string{"…", "a…", "a…", "a…", "a\u20ac"} {
		if got := Truncate("a\u20ac", limit); got != want {
			t.Errorf("%d bytes: got %q, want %q", limit, got, want)
		}
	}
}
