// Package pushflags has the flags of commands that push profiles to Pyroscope.
package pushflags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/push"
)

// rootSpool is the spool of root. Other users have one under XDG_STATE_HOME. /var/lib/allocscope
// may belong to the user of an agent.
const rootSpool = "/var/spool/allocscope"

// UserSpool is DefaultSpool in words.
const UserSpool = rootSpool + "; for others than root ~/.local/state/allocscope/spool"

// jitter spreads the pushes of agents whose jobs begin, and turn, at the same time.
const jitter = time.Minute

// Names of the flags.
const (
	urlFlag          = "push"
	tenantFlag       = "push-tenant"
	userFlag         = "push-user"
	passwordFileFlag = "push-password-file"
	tokenFileFlag    = "push-token-file"
	spoolFlag        = "push-spool"
	spoolSizeFlag    = "push-spool-size"
	labelFlag        = "label"
)

// Flags are the values of the flags.
type Flags struct {
	set       *pflag.FlagSet
	options   push.Options
	spoolSize flagvalue.Size
}

// Add defines the flags of a command, as a group of the help. It has the default of the spool in
// words.
func Add(command *cobra.Command, spool string) *Flags {
	set := command.Flags()
	f := &Flags{set: set}
	o := &f.options
	set.StringVar(&o.URL, urlFlag, "",
		"send the profiles to the Pyroscope at `URL`: http://pyroscope:4040. What it does not take "+
			"now waits in a spool")
	set.StringToStringVar(&o.Labels, labelFlag, nil,
		"label `NAME=VALUE` of the profiles: team=vision. It may be repeated")
	set.Lookup(labelFlag).DefValue = "" // not []
	set.StringVar(&o.Tenant, tenantFlag, "", "`NAME` of the tenant in Pyroscope, as X-Scope-OrgID")
	set.StringVar(&o.User, userFlag, "", "`NAME` of basic authentication")
	set.StringVar(&o.PasswordFile, passwordFileFlag, "",
		"`FILE` with its password, which only its owner may read")
	set.StringVar(&o.TokenFile, tokenFileFlag, "",
		"`FILE` with a bearer token, which only its owner may read")
	set.StringVar(&o.Spool, spoolFlag, "", "`DIR` of the spool (default "+spool+")")
	set.Var(&f.spoolSize, spoolSizeFlag,
		"size of the spool; the oldest profiles make room (default 256MiB)")
	cli.Group(set, "Push to Pyroscope", urlFlag, labelFlag, tenantFlag, userFlag, passwordFileFlag,
		tokenFileFlag, spoolFlag, spoolSizeFlag)
	cli.CompleteFolders(command, spoolFlag)
	cli.CompleteFiles(command, passwordFileFlag, tokenFileFlag)
	return f
}

// Options returns the options of the flags; nil: no profiles are pushed. The spool is empty unless
// a flag names it.
func (f *Flags) Options() (*push.Options, error) {
	o := f.options
	if o.URL == "" {
		for _, name := range []string{
			labelFlag, tenantFlag, userFlag, passwordFileFlag, tokenFileFlag, spoolFlag,
			spoolSizeFlag,
		} {
			if f.set.Changed(name) {
				return nil, fmt.Errorf("--%s has no effect without --%s URL", name, urlFlag)
			}
		}
		return nil, nil
	}

	o.MaxSpoolBytes = int64(min(f.spoolSize.Bytes, 1<<50))
	o.Jitter = jitter
	return &o, nil
}

// DefaultSpool is the spool of the current user, UserSpool. See
// https://specifications.freedesktop.org/basedir-spec/latest/.
func DefaultSpool() (string, error) {
	if os.Geteuid() == 0 {
		return rootSpool, nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "allocscope", "spool"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home directory for the spool is known (name one with --" +
			spoolFlag + ")")
	}
	return filepath.Join(home, ".local", "state", "allocscope", "spool"), nil
}
