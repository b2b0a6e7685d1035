package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/compare"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/ranks"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/fleet/query"
	"github.com/allocscope/allocscope/growth/outlier"
)

// ranksFlags are the flags of `allocscope ranks`.
type ranksFlags struct {
	job, failOn, html, profile string
	rank, limit                int
	json                       bool

	prometheus, pyroscope                 string
	since                                 time.Duration
	tenant, user, passwordFile, tokenFile string
}

func newRanksCommand() *cobra.Command {
	var flags ranksFlags
	command := &cobra.Command{
		Use:   "ranks [DIR...]",
		Short: "Show which rank of a job grows unlike the others, and by what",
		Long: `Ranks compares the ranks of a job: a table by growth, which rank stands out with the
chance that this is noise, and the difference of its growth profile against the rank with the
median growth. It takes the folders of traces, of one rank or of several each, or asks
Prometheus and Pyroscope, to which the agents of a fleet have sent theirs.

docs/reference/ranks.md explains the columns.`,
		Example: `  allocscope ranks traces/*/
  allocscope ranks --prometheus http://prometheus:9090 --pyroscope http://pyroscope:4040 --job 4242`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folders,
		Annotations: map[string]string{
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused, exit.Found,
				exit.Inconclusive),
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := flags.check(command, arguments); err != nil {
				return exit.Usage(err)
			}
			return runRanks(command.Context(), command.OutOrStdout(), flags, arguments)
		},
	}

	set := command.Flags()
	set.StringVar(&flags.job, "job", "",
		"ID of the job; for folders it is needed only where they are of several jobs")
	set.IntVar(&flags.rank, "rank", -1,
		"rank to compare with the median rank (default the one that stands out)")
	set.StringVar(&flags.failOn, "fail-on", "",
		"outlier: exit with status 3 if a rank stands out, and 4 where that is not known")
	set.StringVar(&flags.prometheus, "prometheus", "", "URL of the Prometheus with the agents' metrics")
	set.StringVar(&flags.pyroscope, "pyroscope", "",
		"URL of the Pyroscope with the traces' profiles; without it there is the table alone")
	set.DurationVar(&flags.since, "since", time.Hour,
		"how far back to search for the profiles, and for the metrics of a job that has ended")
	set.StringVar(&flags.tenant, "tenant", "", "tenant of both servers (X-Scope-OrgID)")
	set.StringVar(&flags.user, "user", "", "user of both servers, for basic authentication")
	set.StringVar(&flags.passwordFile, "password-file", "",
		"file with the password, which its owner alone may read")
	set.StringVar(&flags.tokenFile, "token-file", "",
		"file with the bearer token of both servers, which its owner alone may read")
	set.IntVar(&flags.limit, "limit", 20, "ranks, components and stacks to print")
	set.BoolVar(&flags.json, "json", false, "print the result as JSON, with all ranks and stacks")
	set.StringVar(&flags.html, "html", "", "HTML file to write as well")
	set.StringVar(&flags.profile, "profile", "",
		"pprof file to write as well: the growth of the rank less that of the median rank")

	cli.Group(set, "What is compared", "job", "rank", "fail-on")
	cli.Group(set, "Servers", "prometheus", "pyroscope", "since", "tenant", "user", "password-file",
		"token-file")
	cli.Group(set, "Output", "limit", "json", "html", "profile")
	cli.CompleteValues(command, "fail-on", "outlier")
	cli.CompleteFiles(command, "password-file", "token-file", "html", "profile")
	return command
}

// check refuses flags and arguments that make no sense together.
func (f *ranksFlags) check(command *cobra.Command, arguments []string) error {
	changed := command.Flags().Changed
	switch {
	case f.prometheus == "" && len(arguments) == 0:
		return errors.New("no traces are named (allocscope ranks DIR..., or --prometheus URL --job ID)")
	case f.prometheus != "" && len(arguments) > 0:
		return errors.New("folders and --prometheus: give one of them")
	case f.prometheus != "" && f.job == "":
		return errors.New("no job is named (--prometheus URL --job ID)")
	case f.failOn != "" && f.failOn != "outlier":
		return fmt.Errorf("--fail-on %q is not outlier", f.failOn)
	case f.limit < 0:
		return fmt.Errorf("--limit %d is negative", f.limit)
	case changed("rank") && f.rank < 0:
		return fmt.Errorf("--rank %d is negative", f.rank)
	case f.since <= 0:
		return fmt.Errorf("--since %s is not positive", f.since)
	}

	if f.prometheus == "" {
		for _, name := range []string{
			"pyroscope", "since", "tenant", "user", "password-file", "token-file",
		} {
			if changed(name) {
				return fmt.Errorf("--%s goes with --prometheus", name)
			}
		}
		return nil
	}
	if err := f.server("Prometheus", f.prometheus).Check(); err != nil {
		return err
	}
	if f.pyroscope == "" {
		return nil
	}
	return f.server("Pyroscope", f.pyroscope).Check()
}

func (f *ranksFlags) server(name, url string) query.Server {
	return query.Server{
		Name: name, URL: url, Tenant: f.tenant, User: f.user, PasswordFile: f.passwordFile,
		TokenFile: f.tokenFile,
	}
}

func runRanks(ctx context.Context, out io.Writer, flags ranksFlags, folders []string) error {
	var result *ranks.Result
	var err error
	if flags.prometheus != "" {
		result, err = ranksOfServers(ctx, flags)
	} else {
		result, err = ranksOfFolders(flags, folders)
	}
	if err != nil {
		return err
	}

	if flags.html != "" {
		if err := writePage(flags.html, result.WriteHTML); err != nil {
			return err
		}
	}
	if flags.profile != "" {
		if err := writePage(flags.profile, result.WriteProfile); err != nil {
			return err
		}
	}
	if flags.json {
		err = result.WriteJSON(out)
	} else {
		err = result.WriteText(out, flags.limit)
	}
	if err != nil {
		return err
	}
	return flags.status(result)
}

// status is the exit status of --fail-on.
func (f *ranksFlags) status(r *ranks.Result) error {
	switch {
	case f.failOn == "":
		return nil
	case r.Outcome == ranks.OutcomeOutlier:
		return &exit.Error{Status: exit.Found, Err: errors.New("a rank stands out (--fail-on outlier)")}
	case r.Outcome == ranks.OutcomeUnknown:
		return &exit.Error{Status: exit.Inconclusive, Err: errors.New(
			"whether a rank stands out is not known (--fail-on outlier)")}
	}
	return nil
}

// chosen is the rank that the user has chosen; nil: none.
func (f *ranksFlags) chosen() *int {
	if f.rank < 0 {
		return nil
	}
	return &f.rank
}

// pair returns the two ranks to compare. ok is false where there are none and the user asked for
// none.
func (f *ranksFlags) pair(r *ranks.Result) (rank, median int, ok bool, err error) {
	rank, median, ok = r.Pair(f.chosen())
	switch {
	case ok:
	case f.rank >= 0 && rank < 0:
		err = exit.Refuse(fmt.Errorf("there is no rank %d", f.rank))
	case f.rank >= 0:
		err = exit.Refuse(
			fmt.Errorf("rank %d is the one with the median growth (choose another)", f.rank))
	case f.profile != "":
		err = fmt.Errorf("write %s: no rank stands out (choose one with --rank)", f.profile)
	}
	return rank, median, ok, err
}

// ranksOfFolders compares the ranks of traces. Folders that cannot be read are a note, if others
// can.
func ranksOfFolders(flags ranksFlags, paths []string) (*ranks.Result, error) {
	var all []ranks.Rank
	var failed []error
	for _, path := range paths {
		found, err := readRanks(path)
		if err != nil {
			failed = append(failed, err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return nil, exit.Refuse(failed[0])
	}

	job, all, err := ranks.OfJob(all, flags.job)
	if err != nil {
		return nil, exit.Refuse(err)
	}
	r := ranks.Find(job, all, outlier.MaxChance)
	if len(failed) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s not read: %v",
			units.Plural(len(failed), "folder is", "folders are"), failed[0]))
	}

	rank, median, ok, err := flags.pair(r)
	if err != nil || !ok {
		return r, err
	}
	return r, compareFolders(flags, r, rank, median)
}

func readRanks(path string) ([]ranks.Rank, error) {
	dir, err := folder.Open(path, folder.Owner{})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	found, err := ranks.ReadFolder(dir, path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, explainUnfinished(err, dir))
	}
	return found, nil
}

// compareFolders compares the profiles of two ranks. Without them there is the table alone, unless
// the user wants more.
func compareFolders(flags ranksFlags, r *ranks.Result, rank, median int) error {
	var traces [2]*compare.Trace
	for i, index := range []int{rank, median} {
		t, err := readRankGrowth(&r.Ranks[index])
		if err != nil {
			return flags.noProfile(r, index, err)
		}
		traces[i] = t
	}
	if err := r.CompareTraces(rank, median, traces[0], traces[1]); err != nil {
		return flags.noProfile(r, rank, err)
	}
	return nil
}

func readRankGrowth(k *ranks.Rank) (*compare.Trace, error) {
	dir, err := folder.Open(k.Path, folder.Owner{})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return ranks.ReadGrowth(dir, k)
}

// noProfile notes that profiles cannot be compared. It is an error where the user asked for the
// comparison.
func (f *ranksFlags) noProfile(r *ranks.Result, index int, cause error) error {
	text := words.NoGrowthProfile(r.Ranks[index].Name, cause.Error())
	if f.rank >= 0 || f.profile != "" {
		return errors.New(text)
	}
	r.Notes = append(r.Notes, units.Name(text))
	return nil
}

// ranksOfServers compares the ranks of which Prometheus knows, by the profiles in Pyroscope.
func ranksOfServers(ctx context.Context, flags ranksFlags) (*ranks.Result, error) {
	prometheus := query.Prometheus{Server: flags.server("Prometheus", flags.prometheus)}
	all, err := prometheus.Ranks(ctx, flags.job, flags.since)
	if err != nil {
		return nil, err
	}

	r := ranks.Find(flags.job, all, outlier.MaxChance)
	if flags.pyroscope == "" {
		if flags.rank >= 0 || flags.profile != "" {
			return nil, exit.Usage(errors.New("--rank and --profile need the profiles (give --pyroscope)"))
		}
		return r, nil
	}

	rank, median, ok, err := flags.pair(r)
	if err != nil || !ok {
		return r, err
	}
	return r, compareServed(ctx, flags, r, rank, median)
}

func compareServed(ctx context.Context, flags ranksFlags, r *ranks.Result, rank, median int) error {
	pyroscope := query.Pyroscope{Server: flags.server("Pyroscope", flags.pyroscope)}
	var grown [2]*pprof.Profile
	for i, index := range []int{rank, median} {
		p, err := pyroscope.Growth(ctx, flags.job, &r.Ranks[index], flags.since)
		if errors.Is(err, query.ErrNoProfile) && i == 1 && flags.profile == "" {
			// Agents trace ranks that leak, and rarely the median one: all growth of the rank counts.
			r.Notes = append(r.Notes, words.NoGrowthProfile(r.Ranks[index].Name, err.Error()))
			break
		}
		if errors.Is(err, query.ErrNoProfile) {
			return flags.noProfile(r, index, err)
		}
		if err != nil {
			return err
		}
		grown[i] = p
	}
	if grown[1] != nil && min(grown[0].DurationNanos, grown[1].DurationNanos) == 0 {
		text := words.TraceLengthsUnknown(r.Ranks[rank].Name, r.Ranks[median].Name)
		if flags.profile != "" {
			return errors.New(text)
		}
		r.Notes, grown[1] = append(r.Notes, text), nil
	}
	if err := r.CompareProfiles(rank, median, grown[0], grown[1]); err != nil {
		return flags.noProfile(r, rank, err)
	}
	return nil
}
