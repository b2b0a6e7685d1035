package snippet

import (
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

const page = "# Title\n\nCall `sudo allocscope doctor --pid N` first, or `allocscope trace ...`.\n\n" +
	"<!-- run: test -->\n```sh\npython3 train.py &\nsudo allocscope trace --pid PID \\\n" +
	"    --duration 10m -o before   # ten minutes\n```\n\n" +
	"<!-- not run: no cluster -->\n\n```sh\nkubectl get pods | allocscope verdict -\n```\n\n" +
	"```sh\nls\n```\n\n```text\nallocscope was here\n```\n\n" +
	"    allocscope diff \"$(ls | head -1)\" after      # two traces\n"

func TestSnippets(t *testing.T) {
	got := Page{"a.md", page}.Snippets()
	want := []Snippet{
		{
			Path: "a.md", Line: 7, Run: "test", Code: "python3 train.py &\n" +
				"sudo allocscope trace --pid PID \\\n--duration 10m -o before   # ten minutes\n",
		},
		{
			Path: "a.md", Line: 15, Reason: "no cluster",
			Code: "kubectl get pods | allocscope verdict -\n",
		},
		{Path: "a.md", Line: 19, Code: "ls\n"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCommands(t *testing.T) {
	var got []string
	for _, c := range (Page{"a.md", page}).Commands() {
		text := strings.Join(c.Arguments, " ")
		if c.Abridged {
			text += " ..."
		}
		got = append(got, text)
	}

	want := []string{
		"doctor --pid 4242 ...", "trace ...", "trace --pid 4242 --duration 10m -o before", "verdict -",
		"diff 1 after",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScript(t *testing.T) {
	t.Run("durations stay", func(t *testing.T) {
		got := Script([]Snippet{{Path: "a.md", Line: 1, Code: "allocscope trace 1 -d 10m\n"}}, "")
		if !strings.HasSuffix(got, " -d 10m\n") {
			t.Errorf("got:\n%s", got)
		}
	})

	t.Run("variables stay", func(t *testing.T) {
		const code = "PID=$(pgrep x)\nsudo allocscope doctor --pid \"$PID\"\n"
		got := Script([]Snippet{{Path: "a.md", Line: 1, Code: code}}, "8s")
		if want := prelude + "echo '== a.md:1'\n" + code; got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	})

	got := Script(Page{"a.md", page}.Snippets()[:1], "8s")
	want := prelude + "echo '== a.md:7'\npython3 train.py &\nPID=$!\nsleep 2\n" +
		"sudo allocscope trace --pid $PID \\\n--duration 8s -o before   # ten minutes\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestFill(t *testing.T) {
	const text = "<!-- run: x -->\n```sh\na\n```\n\nIt prints:\n\n```text\nold\n\nold\n```\n\n" +
		"<!-- run: x -->\n```sh\nb\nc\n```\n\n```text\n```\nThe end.\n"
	page := Page{"a.md", text}

	printed := "== a.md:3\n\n  first\n\n== b.md:3\nother\n== a.md:16\nsecond\n"
	got := tracertest.Must(page.Fill(printed))(t)
	want := strings.Replace(text, "old\n\nold\n", "  first\n", 1)
	want = strings.Replace(want, "```text\n```", "```text\nsecond\n```", 1)
	if got.Text != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.Text, want)
	}
	for _, printed := range []string{"", "== a.md:4\nx\n", "== a.md:3\n```\n"} {
		if _, err := page.Fill(printed); err == nil {
			t.Errorf("%q was taken", printed)
		}
	}
	unfenced := Page{"a.md", "```sh\na\n```\n\n```sh\nb\n```\n\n```text\n```\n"}
	if _, err := unfenced.Fill("== a.md:2\nx\n"); err == nil {
		t.Error("took the block of the next snippet")
	}
}
