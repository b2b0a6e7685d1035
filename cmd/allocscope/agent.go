package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/pushflags"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/fleet"
	requests "github.com/allocscope/allocscope/fleet/serve"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// agentFlags are the flags of `allocscope agent`.
type agentFlags struct {
	set                           *pflag.FlagSet
	rulesFile                     string
	names, users, cgroups, values []string
	job                           string
	minRSS, keepBytes             flagvalue.Size
	duration, traceEvery          flagvalue.Duration
	overhead                      flagvalue.Overhead
	nearLimit                     flagvalue.Share
	tracesPerDay, keep            int
	directory                     string
	serve                         requests.Options
	push                          *pushflags.Flags
	speed                         float64
}

const defaultAgentDirectory = "/var/lib/allocscope"

func newAgentCommand() *cobra.Command {
	var flags agentFlags
	command := &cobra.Command{
		Use:   agentName,
		Short: "Watch the jobs of a node for days, and trace those that leak",
		Long: `Agent finds the processes that train on this node, by rules or by itself, and reads their
memory once a second from /proc: without eBPF, at less than 0.5% of a core for 16 of them. It
judges each as trace does. When a verdict turns to a leak, a growing process meets its limit within
the hour, or the limit is nearly used up, it traces that process for a few minutes, one at a time,
and keeps the folder.

It serves metrics for Prometheus on /metrics, its own state on /healthz and /readyz. Several rules
are alternatives; the conditions of one must all hold. Flags make rules of all combinations.
SIGTERM ends it in order. A later agent continues with the same directory.`,
		Example: `  sudo allocscope agent
  sudo allocscope agent --name train.py --user alice
  sudo allocscope agent --rules /etc/allocscope/rules.yaml --push http://pyroscope:4040`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
		Annotations: map[string]string{
			cli.Environment: `  Every flag can be set by a variable: ALLOCSCOPE_MIN_RSS=1GiB for --min-rss 1GiB. A flag wins
  over its variable. Traces that the agent starts read none.`,
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused),
		},
	}

	flags.add(command)
	command.AddCommand(newAgentStatusCommand(), newAgentTraceCommand())
	return command
}

// add defines the flags.
func (f *agentFlags) add(command *cobra.Command) {
	f.duration = flagvalue.Duration(5 * time.Minute)
	f.traceEvery = flagvalue.Duration(time.Hour)
	_ = f.minRSS.Set("256MiB")  // it is a size
	_ = f.keepBytes.Set("2GiB") // and so is this
	f.overhead = trace.DefaultOptions().Overhead
	f.nearLimit = 0.85

	set := command.Flags()
	f.set = set
	set.StringVar(&f.rulesFile, "rules", "",
		"YAML `FILE` of rules, instead of the flags below (default: Python programs that train, and "+
			"ranks)")
	set.StringArrayVar(&f.names, "name", nil, "`TEXT` in the command line; may be repeated")
	set.StringArrayVar(&f.users, "user", nil, "`USER`, by name or UID; may be repeated")
	set.StringArrayVar(&f.cgroups, "cgroup", nil, "`TEXT` in the path of the cgroup; may be repeated")
	set.StringArrayVar(&f.values, "env", nil,
		"`NAME=VALUE` of a variable when the program was executed, or * for any value; several "+
			"must all hold")
	set.StringVar(&f.job, "job-id", "", "`ID` of the job of processes whose environment has none")
	set.Var(&f.minRSS, "min-rss", "watch processes from this RSS on")

	set.VarP(&f.duration, "duration", "d", "length of a trace")
	set.Var(&f.traceEvery, "trace-every", "least time between two traces of one process")
	set.IntVar(&f.tracesPerDay, "traces-per-day", 24,
		"at most `N` traces of all processes in 24 hours; 0: none, the agent only watches")
	set.Var(&f.nearLimit, "near-limit",
		"trace a process once this much of the limit that it meets first is used, by all in it; 0: do "+
			"not")
	set.Var(&f.overhead, "overhead", "limit of the slow-down of a traced process, as that of trace")

	set.StringVar(&f.directory, "directory", defaultAgentDirectory,
		"`DIR` for folders of traces and the state, of mode 0700")
	set.IntVar(&f.keep, "keep", 20, "keep `N` folders of traces")
	set.Var(&f.keepBytes, "keep-bytes", "keep folders of traces up to this size")

	set.StringVar(&f.serve.Listen, "listen", requests.DefaultListen,
		"`ADDRESS` of /metrics, /healthz and /readyz; empty: none")
	set.StringVar(&f.serve.Health, "health", "",
		"`ADDRESS` of /healthz and /readyz alone, for what restarts the agent: connections to "+
			"--listen do not count there (default: none)")
	set.StringSliceVar(&f.serve.Hosts, "host", nil,
		"`NAME` by which Prometheus calls this host, where that is not a listening address; may "+
			"be repeated")
	set.StringVar(&f.serve.TokenFile, "trace-token", "",
		"`FILE` with the bearer token for POST /trace on --listen (default: traces on request are "+
			"refused there)")
	set.StringVar(&f.serve.Socket, "socket", "",
		"`PATH` of a Unix socket on which root may ask for traces and the status: "+requests.DefaultSocket+
			" (default: none)")

	set.Float64Var(&f.speed, "speed", 1,
		"how many times faster than real ones the processes live, for tests")
	_ = set.MarkHidden("speed") // it exists

	cli.Group(set, "Jobs", "rules", "name", "user", "cgroup", "env", "job-id", "min-rss")
	cli.Group(set, "Traces", "duration", "trace-every", "traces-per-day", "near-limit", "overhead")
	cli.Group(set, "Files", "directory", "keep", "keep-bytes")
	cli.Group(set, "Metrics and requests", "listen", "health", "host", "trace-token", "socket")
	f.push = pushflags.Add(command, "spool in --directory")

	cli.CompleteFolders(command, "directory")
	cli.CompleteFiles(command, "rules", "trace-token", "socket")
}

// run runs the agent until ctx ends.
func (f *agentFlags) run(ctx context.Context) error {
	options, err := f.options()
	if err != nil {
		return exit.Usage(err)
	}

	if err := trace.VolunteerForOOM(); err != nil {
		slog.Warn(err.Error())
	}

	if text := missingPrivileges(); text != "" {
		slog.Warn(text)
	}
	if !fleet.HostPIDs() {
		slog.Warn("the agent runs in a PID namespace of its own: it sees the processes of its " +
			"container alone (set hostPID: true in the pod, or start the container with --pid=host)")
	}

	agent, err := fleet.New(options)
	switch {
	case errors.Is(err, fleet.ErrInUse):
		return exit.Refuse(fmt.Errorf("%w (give each agent a --directory of its own)", err))
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		return exit.Refuse(fmt.Errorf("%w (choose another with --directory)", err))
	case err != nil:
		return exit.Refuse(err)
	}

	server, err := requests.Listen(ctx, f.serve, agent)
	if err != nil {
		return exit.Refuse(errors.Join(err, agent.Close()))
	}

	if warning := exposure(server.Address()); warning != "" {
		slog.Warn(warning)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop() // a failed part ends the rest
		served <- server.Serve(ctx)
	}()
	slog.Info(f.started(options, server.Address()))

	err = agent.Run(ctx)
	stop()
	return errors.Join(err, <-served, agent.Close())
}

// missingPrivileges says what the agent cannot do; empty: it can do all.
func missingPrivileges() string {
	missing, err := kernel.MissingPrivileges()
	if err != nil || len(missing) == 0 {
		return ""
	}

	var names []string
	without := "it watches the memory of all processes, and cannot trace"
	isFatal := false
	for _, p := range missing {
		names = append(names, p.Name)
		isFatal = isFatal || p.Without == ""
	}
	if !isFatal {
		without = "its traces lack something: sudo allocscope doctor says what"
	}
	return fmt.Sprintf("the agent lacks %s: %s (sudo allocscope agent)", strings.Join(names, ", "), without)
}

// started says what the agent does, and where it answers; nil: nowhere.
func (f *agentFlags) started(o fleet.Options, at *net.TCPAddr) string {
	what := "Python programs that train, and ranks"
	if n := len(o.Rules); n > 0 {
		what = "processes by " + units.Plural(n, "rule", "rules")
	}

	line := fmt.Sprintf("watching %s from %s on, in %s", what, units.Bytes(float64(o.MinRSS)),
		o.Directory)
	if at != nil {
		line += "; metrics on http://" + at.String() + "/metrics"
	}

	return line
}

// options are the options of the agent.
func (f *agentFlags) options() (fleet.Options, error) {
	rules, err := f.rules()
	if err != nil {
		return fleet.Options{}, err
	}

	to, err := f.push.Options()
	if err != nil {
		return fleet.Options{}, err
	}

	overhead := "" // the overhead of trace, with a floor
	if f.set.Changed("overhead") {
		overhead = f.overhead.String()
	}

	return fleet.Options{
		Version: newVersion().Version, Rules: rules, Directory: f.directory,
		Keep: f.keep, KeepBytes: int64(min(f.keepBytes.Bytes, 1<<62)),
		Duration: time.Duration(f.duration), TraceEvery: time.Duration(f.traceEvery),
		TracesPerDay: f.tracesPerDay, MinRSS: int64(min(f.minRSS.Bytes, 1<<62)),
		NearLimit: float64(f.nearLimit),
		Overhead:  overhead, Push: to, Report: logEvent, Speed: f.speed,
	}, nil
}

// rules are from the file, or from the flags.
func (f *agentFlags) rules() ([]fleet.Rule, error) {
	byFlags, err := f.flagRules()
	if err != nil || f.rulesFile == "" {
		return byFlags, err
	}

	if len(byFlags) > 0 {
		return nil, errors.New("--rules and flags of rules: give one of them")
	}

	file, err := os.Open(f.rulesFile)
	if err != nil {
		return nil, fmt.Errorf("--rules: %w", err)
	}

	defer file.Close()
	rules, err := fleet.ReadRules(file)
	if err != nil {
		return nil, fmt.Errorf("--rules %s: %w", f.rulesFile, err)
	}

	return rules, nil
}

// flagRules are the combinations of the flags.
func (f *agentFlags) flagRules() ([]fleet.Rule, error) {
	environment := make(map[string]string)
	for _, text := range f.values {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--env %q is not NAME=VALUE", units.Name(text))
		}
		environment[name] = value
	}

	if len(f.names)+len(f.users)+len(f.cgroups)+len(environment) == 0 {
		if f.job != "" {
			return nil, errors.New("--job-id needs a flag that chooses processes (--name)")
		}
		return nil, nil
	}

	anyOf := func(values []string) []string {
		if len(values) == 0 {
			return []string{""}
		}
		return values
	}

	if n := len(anyOf(f.names)) * len(anyOf(f.users)) * len(anyOf(f.cgroups)); n > fleet.MaxRules {
		return nil, fmt.Errorf("the flags make %d rules, more than %d (write --rules FILE)", n,
			fleet.MaxRules)
	}

	var rules []fleet.Rule
	for _, name := range anyOf(f.names) {
		for _, user := range anyOf(f.users) {
			for _, cgroup := range anyOf(f.cgroups) {
				rules = append(rules, fleet.Rule{
					Job: f.job, Command: name, User: user, Cgroup: cgroup, Environment: environment,
				})
			}
		}
	}

	return rules, nil
}
