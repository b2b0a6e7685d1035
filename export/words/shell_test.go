package words

import (
	"os/exec"
	"testing"
)

func TestShellQuote(t *testing.T) {
	for _, path := range []string{
		"allocscope-42-20260102-030405/growth.pb.gz", "/tmp/a b", "it's", "''", "$HOME", "`id`",
		"$(id)", "a;b", "a&b", "a|b", "*", "~", "#x", "!x", `back\slash`,
		"new\nline", "tab\t", "\xff\xfe", "é", "a=b", "{a,b}", "\"", "-dash", "\x1b[31m",
	} {
		out, err := exec.Command("sh", "-c", "printf %s. "+ShellQuote(path)).Output()
		if err != nil || string(out) != path+"." {
			t.Errorf("%q is quoted as %s, which the shell reads as %q, %v", path, ShellQuote(path),
				out, err)
		}
	}

	t.Run("plain words", func(t *testing.T) {
		for _, word := range []string{
			"/home/me/allocscope-42_x+y/growth.pb.gz", "mapping,fault", "--pid=5", "127.0.0.1:80",
			"a@b",
		} {
			if ShellQuote(word) != word {
				t.Errorf("quoted as %s", ShellQuote(word))
			}
		}
		mustBe(t, ShellQuote("A=b"), "'A=b'")
	})

	t.Run("command line", func(t *testing.T) {
		arguments := []string{"a b", "it's", "", "$HOME", "plain"}
		out, err := exec.Command("sh", "-c", "printf '<%s>' "+CommandLine(arguments)).Output()
		if want := "<a b><it's><><$HOME><plain>"; err != nil || string(out) != want {
			t.Errorf("the shell reads %s, %v; want %s", out, err, want)
		}
	})
}
