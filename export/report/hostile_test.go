package report

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
)

var hostileNames = []string{
	"</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
	"\" onmouseover=\"alert(1)", "' x='", "`", "{{.Command}}", "{{", "]]>", "<!--", "-->",
	"<![CDATA[",
	"\u202edrowssap\u202c", "\u2066\u2069\u200b\u200d\ufeff\u00ad\u2028\u2029", "a\x00b",
	"\x1b[31m\x07\x9b", "\xff\xfe\xed\xa0\x80", strings.Repeat("x", 10_000),
	strings.Repeat("\u202e<", 10_000),
	"javascript:alert(1)", "</title>", "</style>", "&lt;&#60;&amp;", "\n\r\t\v",
	"\U000e0041\ufe0f\u034f\u115f", "", "[", "]", "f (a.py:1)", "%s%!d(", "\\u003c/script\\u003e",
	"</pre></details>",
}

// FuzzHostileNames puts a name everywhere: whatever it is, the page has the elements and attributes
// that it has with harmless ones, and no character of it hides, or reorders the text around it.
func FuzzHostileNames(f *testing.F) {
	for _, name := range hostileNames {
		f.Add(name)
	}
	want := shapeOf(f, "harmless")
	f.Fuzz(func(t *testing.T, name string) {
		if got := shapeOf(t, name); got != want {
			t.Errorf("%q changes the page to\n%s\nfrom\n%s", name, got, want)
		}
	})
}

// shapeOf is the page of a trace whose names are all this, each with something of its own around
// it: elements and attributes.
func shapeOf(t testing.TB, name string) string {
	page := show(t, named(t, name))
	var b strings.Builder
	for n := range page.root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			var keys []string
			for _, a := range n.Attr {
				mustBeSeen(t, a.Val)
				keys = append(keys, a.Key)
			}
			slices.Sort(keys)
			fmt.Fprintf(&b, "%s %v %s\n", n.Data, keys, attribute(n, "id"))
		case html.CommentNode:
			t.Errorf("a comment: %q", n.Data)
		case html.TextNode:
			mustBeSeen(t, n.Data)
		}
	}
	names := slices.Concat(page.data.Flame.Names, page.data.Flame.Components)
	for _, flame := range page.data.GPUFlames {
		names = slices.Concat(names, flame.Names, flame.Components)
	}
	for _, phase := range page.data.Timeline.GPUPhases {
		names = append(names, phase.Label)
	}
	for _, text := range names {
		mustBeSeen(t, text)
	}
	for _, mark := range page.data.Timeline.Marks {
		mustBeSeen(t, mark.Text)
	}
	return b.String()
}

// named is a trace in which every text holds a name.
func named(t testing.TB, name string) *Trace {
	trace := gpuTrace(t)
	n := 0
	with := func(string) string { n++; return fmt.Sprintf("n%d%s", n, name) }
	fillTexts(reflect.ValueOf(&trace.Summary), "", with)
	trace.Missing = []string{with("")}
	for _, f := range trace.Growth.Function {
		f.Name, f.Filename = with(""), with("")
	}
	for _, m := range trace.Growth.Mapping {
		m.File = with("")
	}
	for _, s := range trace.Growth.Sample {
		for key := range s.Label {
			s.Label[key] = []string{with("")}
		}
	}
	return trace
}

func mustBeSeen(t testing.TB, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("not UTF-8: %.100q", text)
	}
	for _, r := range text {
		if r != '\n' && r != '\t' &&
			(unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) ||
				unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)) {
			t.Errorf("%U is in the page", r)
		}
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", 500):     strings.Repeat("x", 500),
		strings.Repeat("x", 501):     strings.Repeat("x", 500) + "…",
		strings.Repeat("😀", 100_000): strings.Repeat("😀", 500) + "…",
		strings.Repeat("\xff", 4):    "\uFFFD", "a\u202eb": "a\uFFFDb", "a\nb\u00a0c": "a b c",
		"naïve 漢字": "naïve 漢字",
	} {
		if got := clean(text); got != want {
			t.Errorf("%.20q… becomes %.40q… of %d bytes", text, got, len(got))
		}
	}
}

func TestSanitized(t *testing.T) {
	s := leakingSummary()
	s.DurationS, s.IntervalBytes = 1e308, 1<<64-1
	s.Marks = slices.Repeat(s.Marks, 5000)
	s.Accumulating = slices.Repeat(s.Accumulating, 60)
	s.Accumulating[0].Bytes = -1 << 63
	bounded, cut := sanitized(&s)
	if bounded.DurationS != maxExact || bounded.IntervalBytes != maxExact ||
		bounded.Accumulating[0].Bytes != -maxExact || len(bounded.Marks) != 1000 ||
		len(bounded.Accumulating) != 50 {
		t.Errorf("%g s, %d bytes, %d marks, %d stacks", bounded.DurationS, bounded.IntervalBytes,
			len(bounded.Marks), len(bounded.Accumulating))
	}
	if want := []string{
		"Of the 5000 entries of marks only the first 1000 are shown.",
		"Of the 60 entries of accumulating only the first 50 are shown.",
	}; !slices.Equal(cut, want) {
		t.Errorf("says %q", cut)
	}
	shown := text(show(t, &Trace{Summary: s}).byID(t, "losses"))
	if !strings.Contains(shown, "Of the 5000 entries of marks") {
		t.Errorf("shows %s", shown)
	}

	// The shown summary is a copy.
	t.Run("is a copy", func(t *testing.T) {
		s, want := leakingSummary(), leakingSummary()
		s.Marks[0].Text, want.Marks[0].Text = "\u202e", "\u202e"
		*s.RSS.EndBytes, *want.RSS.EndBytes = 1<<62, 1<<62
		bounded, _ := sanitized(&s)
		if !reflect.DeepEqual(s, want) || bounded.Marks[0].Text != "\uFFFD" ||
			*bounded.RSS.EndBytes != maxExact {
			t.Errorf("%+v", s)
		}
	})
}
