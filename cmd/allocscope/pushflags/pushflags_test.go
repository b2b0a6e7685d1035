package pushflags

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func parse(t *testing.T, environment []string, arguments ...string) (*push.Options, error) {
	t.Helper()
	command := &cobra.Command{Use: "trace"}
	set := command.Flags()
	flags := Add(command, "spool in --directory")
	tracertest.NoError(t, set.Parse(arguments))
	if _, err := cli.FromEnvironment(set, environment); err != nil {
		t.Fatal(err)
	}
	return flags.Options()
}

func TestOptions(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	spool := filepath.Join(state, "allocscope", "spool")
	if os.Geteuid() == 0 {
		spool = "/var/spool/allocscope"
	}

	if got, err := DefaultSpool(); got != spool || err != nil {
		t.Errorf("%q, %v", got, err)
	}

	if o, err := parse(t, nil); o != nil || err != nil {
		t.Errorf("%+v, %v without flags", o, err)
	}

	o, err := parse(t, []string{"ALLOCSCOPE_PUSH_TENANT=team-a", "ALLOCSCOPE_LABEL=a=1,b=2"},
		"--push", "http://host:4040", "--push-spool-size", "10MiB")
	tracertest.NoError(t, err)
	if o.URL != "http://host:4040" || o.Tenant != "team-a" || o.MaxSpoolBytes != 10<<20 ||
		o.Spool != "" || !maps.Equal(o.Labels, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("%+v", o)
	}

	o, err = parse(t, nil, "--push", "http://host:4040", "--label", "team=vision", "--label",
		"rank=3", "--push-spool", "/tmp/spool", "--push-token-file", "/etc/token")
	tracertest.NoError(t, err)
	if o.Spool != "/tmp/spool" || o.TokenFile != "/etc/token" || o.MaxSpoolBytes != 0 ||
		!maps.Equal(o.Labels, map[string]string{"team": "vision", "rank": "3"}) {
		t.Errorf("%+v", o)
	}

	_, err = parse(t, nil, "--label", "team=vision")
	if err == nil || !strings.Contains(err.Error(), "--label has no effect without --push URL") {
		t.Errorf("%v", err)
	}
}
