package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// newCommand returns a command with flags of three groups, and where its flags are kept.
func newCommand() (*cobra.Command, *values) {
	v := &values{}
	root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true}
	command := &cobra.Command{
		Use: "work", Run: func(*cobra.Command, []string) {},
		Annotations: map[string]string{ExitStatus: "  0  done", Environment: "  TOOL_X is read"},
	}

	set := command.Flags()
	set.IntVarP(&v.count, "count", "c", 1, "how often")
	set.BoolVar(&v.dry, "dry-run", false, "do nothing")
	set.StringSliceVar(&v.parts, "parts", []string{"all"}, "parts to use")
	set.StringVar(&v.plain, "plain", "", "of no group")
	Group(set, "Work", "count")
	Group(set, "Parts", "parts", "dry-run")

	root.PersistentFlags().Bool("loud", false, "say more")
	root.AddCommand(command)
	Install(root)
	return command, v
}

type values struct {
	count int
	dry   bool
	parts []string
	plain string
}

func TestHelp(t *testing.T) {
	command, _ := newCommand()
	var out bytes.Buffer
	command.Root().SetOut(&out)
	command.Root().SetArgs([]string{"work", "--help"})
	tracertest.NoError(t, command.Root().Execute())

	last := -1
	for _, part := range []string{
		"\n\nWork:\n", "-c, --count int", "\n\nParts:\n", "--dry-run", "--parts",
		"\n\nFlags:\n", "--plain", "\n\nGlobal flags:\n", "--loud",
		"\n\nEnvironment:\n  TOOL_X is read", "\n\nExit status:\n  0  done\n",
	} {
		at := strings.Index(out.String(), part)
		if at <= last {
			t.Errorf("%q is at %d, after %d of\n%s", part, at, last, out.String())
		}
		last = at
	}
}

func TestPlainErrors(t *testing.T) {
	for argument, want := range map[string]string{
		"--count=abc":                  `--count "abc" is not a number`,
		"-cabc":                        `--count "abc" is not a number`,
		"--count=99999999999999999999": `--count "99999999999999999999" is out of range`,
		"--dry-run=maybe":              `--dry-run "maybe" is neither true nor false`,
		"--other":                      "unknown flag: --other",
	} {
		command, _ := newCommand()
		command.Root().SetArgs([]string{"work", argument})
		if err := command.Root().Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", argument, err, want)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	command, v := newCommand()
	set := command.Flags()
	tracertest.NoError(t, set.Parse([]string{"--count", "7"}))

	unknown, err := FromEnvironment(set, []string{
		"HOME=/", "ALLOCSCOPE_COUNT=9", "ALLOCSCOPE_DRY_RUN=1", "ALLOCSCOPE_PARTS=a,b",
		"ALLOCSCOPE_PLAIN=no", "ALLOCSCOPE_ZERO=x", "ALLOCSCOPE_HELP=1", "ALLOCSCOPE=bin",
	}, "plain")
	if err != nil || !slices.Equal(unknown, []string{"ALLOCSCOPE_HELP", "ALLOCSCOPE_ZERO"}) {
		t.Errorf("unknown %q, %v", unknown, err)
	}
	if v.count != 7 || !v.dry || !slices.Equal(v.parts, []string{"a", "b"}) || v.plain != "" {
		t.Errorf("read %+v", v)
	}
	if !set.Changed("dry-run") || set.Changed("plain") {
		t.Error("which flags were set is wrong")
	}
}

func TestFromEnvironmentRefusal(t *testing.T) {
	command, _ := newCommand()
	_, err := FromEnvironment(command.Flags(), []string{"ALLOCSCOPE_COUNT=abc"})
	want := `read the environment: ALLOCSCOPE_COUNT "abc" is not a number`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}

	flag := &pflag.Flag{Value: command.Flags().Lookup("plain").Value}
	if err := valueError("X", flag, "y", errors.New("no")); err.Error() != "X: no" {
		t.Errorf("%v", err)
	}
}
