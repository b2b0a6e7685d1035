package page_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/export/page"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// written is a page as a browser gets it.
func written(t *testing.T, p page.Page) string {
	t.Helper()
	var out bytes.Buffer
	tracertest.NoError(t, page.Write(&out, p))
	return out.String()
}

func TestWrite(t *testing.T) {
	t.Run("policy", func(t *testing.T) {
		text := written(t, page.Page{Title: "title"})
		policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
		if policy == nil {
			t.Fatal("the page has no policy")
		}
		directives := strings.Split(html.UnescapeString(policy[1]), "; ")
		script := content(t, text, "<script>", "</script>")
		style := content(t, text, "<style>", "</style>")
		for _, want := range []string{
			"default-src 'none'", "script-src 'sha256-" + hash(script) + "'",
			"style-src 'sha256-" + hash(style) + "'", "base-uri 'none'",
			"form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
		} {
			if !slices.Contains(directives, want) {
				t.Errorf("the policy %q lacks %q", directives, want)
			}
		}
		if len(script) < 10_000 || len(style) < 5_000 {
			t.Errorf("a script of %d and a style of %d bytes are not what was built", len(script),
				len(style))
		}
	})

	t.Run("loads nothing", func(t *testing.T) {
		text := written(t, page.Page{Title: "title"})
		for _, address := range regexp.MustCompile(`(?i)\b(src|href|action)\s*=\s*["'][^"'#]+|url\(|@import|importScripts|new Worker|fetch\(|XMLHttpRequest`).FindAllString(text,
			-1) {
			t.Errorf("the page refers to %s", address)
		}
	})

	t.Run("hostile names", func(t *testing.T) {
		names := []string{
			"</script><script>alert(1)</script>", "<!--<script>", "</title><b>", `"'&`, "\u202e",
			"a\xffb", strings.Repeat("x", 10_000),
		}
		plain := written(t, page.Page{Title: "t", Data: []string{""}})
		for _, name := range names {
			text := written(t, page.Page{Title: name, Data: []string{name}})
			for _, tag := range []string{"<script", "</script", "<!--", "<b>", "</title"} {
				if got, want := strings.Count(text, tag), strings.Count(plain, tag); got != want {
					t.Errorf("with the name %.40q the page has %d %s, want %d", name, got, tag,
						want)
				}
			}
			var back []string
			data := content(t, text, `<script type="application/json" id="data">`, "</script>")
			if err := json.Unmarshal([]byte(data), &back); err != nil || len(back) != 1 ||
				back[0] != strings.ToValidUTF8(name, "\ufffd") {
				t.Errorf("the name %.40q comes back from the data as %.40q, error %v", name, back,
					err)
			}
		}
	})

	t.Run("data without JSON", func(t *testing.T) {
		if err := page.Write(new(bytes.Buffer), page.Page{Data: func() {}}); err == nil {
			t.Error("a function was written as data")
		}
	})

	t.Run("licences", func(t *testing.T) {
		text := content(t, written(t, page.Page{}), `<pre tabindex="0">`, "</pre>")
		var lock struct {
			Dependencies map[string]string
		}
		manifest := tracertest.Must(os.ReadFile("web/package.json"))(t)
		if err := json.Unmarshal(manifest, &lock); err != nil || len(lock.Dependencies) == 0 {
			t.Fatalf("web/package.json has %d dependencies, error %v", len(lock.Dependencies), err)
		}
		for name, version := range lock.Dependencies {
			if !strings.Contains(text, name+" "+version+" (") {
				t.Errorf("the licence of %s %s is missing", name, version)
			}
		}
	})
}

func content(t *testing.T, text, open, end string) string {
	t.Helper()
	_, after, found := strings.Cut(text, open)
	inside, _, ended := strings.Cut(after, end)
	if !found || !ended || strings.Count(text, open) != 1 {
		t.Fatalf("the page has not one %s", open)
	}
	return inside
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// The script says sizes as the words of the Go side do: web/test reads the same file.
func TestUnitsOfScript(t *testing.T) {
	const path = "web/test/units.json"
	var golden struct {
		Bytes  [][2]any `json:"bytes"`
		Counts [][2]any `json:"counts"`
	}
	sizes := []float64{
		0, 1, 999, 1000, 1023, 1024, 1152, 1408, 102_912, 103_936, 10_304, 10_368, -1, -1152,
		-102_912, 1 << 52,
	}
	for x := 1.0; x < 1e16; x *= 1.1 {
		sizes = append(sizes, float64(int64(x)))
	}
	for _, x := range sizes {
		golden.Bytes = append(golden.Bytes, [2]any{x, units.Bytes(x)})
	}
	for x := 1.0; x < 1e12; x *= 1.2 {
		golden.Counts = append(golden.Counts, [2]any{
			float64(int64(x)), units.Count(float64(int64(x))),
		})
	}
	want := tracertest.Must(json.Marshal(golden))(t)
	want = append(want, '\n')
	if *exporttest.Update {
		tracertest.NoError(t, os.WriteFile(path, want, 0o644))
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what export/units writes (error %v): go test ./export/page -update, and then make the script say it",
			path, err)
	}
}
