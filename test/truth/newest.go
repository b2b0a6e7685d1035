package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/test/harness"
)

// newest is the part about the newest runtimes, in the folder that testdata/newest.sh prints.
const (
	newest        = "newest runtimes"
	newestFile    = "docs/support.md"
	newestHeading = "## The newest runtimes\n"
)

// The interpreters of the folder.
const (
	python314 = "/usr/bin/python3.14"
	python315 = "/usr/bin/python3.15"
)

// A newestJob is a program of testdata/truth/newest, or of jobs, that runs in the folder.
type newestJob struct {
	job
	folder   string
	command  string   // an interpreter; empty: it is compiled
	packages []string // of Debian: the versions that it is about
	preload  string   // a library
}

// newestJobs are programs of Python, and one of C++ with each malloc.
func newestJobs() (all []newestJob) {
	add := func(folder, command string, packages []string, j job) {
		j.right, j.grows = leaking, true
		all = append(all, newestJob{job: j, folder: folder, command: command, packages: packages})
	}
	for _, command := range []string{python314, python315} {
		own := []string{filepath.Base(command), "libc6"}
		add("newest", command, own, job{
			name: "kept_rows.py", truth: "leak: a list of dicts", keptBy: "__main__.report",
		})
		add("newest", command, own, job{
			name: "cached_pages.py", truth: "leak: a dict of a module", keptBy: "__main__.pages",
		})
	}

	torch := []string{"python3.14", "python3-torch"}
	add("newest", python314, torch, job{
		name: "kept_losses.py", truth: "leak: losses with their graphs", keptBy: "__main__.losses",
	})
	add("newest", python314, torch, job{
		name: "summed_losses.py", truth: "leak: a sum of losses", keptBy: "__main__.meter",
	})
	add("newest", python314, torch, job{
		name: "compiled.py", truth: "leak: a list, torch.compile", keptBy: "__main__.tracker",
	})
	add("jobs", python314, []string{"python3.14", "python3-numpy"}, job{
		name: "arrays_appended.py", truth: "leak: a list of arrays", keptBy: "__main__.monitor",
	})

	for malloc, library := range map[string]string{
		"libc6": "", "libjemalloc2": "libjemalloc.so.2", "libmimalloc3": "libmimalloc.so.3",
		"libtcmalloc-minimal4t64": "libtcmalloc_minimal.so.4",
	} {
		all = append(all, newestJob{
			job: job{
				name: "server_leak.cc", truth: "leak: lost by a server", right: losing, grows: true,
				function: "handle",
			},
			folder: "jobs", packages: []string{malloc}, preload: library,
		})
	}
	return all
}

// newestTasks returns the demo, the programs, and the programs of testdata/keepers. Without the folder
// there are none.
func newestTasks(c *campaign) (tasks []task) {
	if c.newest == "" {
		return nil
	}

	for _, command := range []string{python314, python315} {
		python := filepath.Base(command)
		versions := c.versionsOf([]string{python})
		tasks = append(tasks, task{
			Row: Row{
				Name: "demo, " + python, Source: versions, Truth: "leak: trainer.py:31",
			},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.newestDemo(ctx, command, r)
			},
		}, task{
			Row: Row{
				Name: "keepers, " + python, Source: versions, Truth: "`testdata/keepers`",
			},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.newestKeepers(ctx, python, r)
			},
		})
	}

	for _, j := range newestJobs() {
		tasks = append(tasks, task{
			Row: Row{
				Name:   j.title() + ", " + j.packages[0],
				Source: c.versionsOf(j.packages), Truth: j.truth, Lost: lostOf(j.job),
			},
			measure: func(ctx context.Context, c *campaign, r *Row) error {
				return c.measureNewest(ctx, j, r)
			},
		})
	}
	slices.SortFunc(tasks, func(a, b task) int { return strings.Compare(a.Name, b.Name) })
	return c.few(tasks, 4)
}

// versionsOf returns the versions of packages in the folder.
func (c *campaign) versionsOf(packages []string) string {
	var texts []string
	for _, name := range packages {
		version, _ := exec.Command("dpkg-query", "--admindir="+filepath.Join(c.newest, "var/lib/dpkg"),
			"--show", "--showformat=${Version}", name).Output() // empty: it is not there
		texts = append(texts, name+" "+upstreamVersion(string(version)))
	}
	return strings.Join(texts, ", ")
}

// upstreamVersion is a version of Debian without its epoch and revision.
func upstreamVersion(version string) string {
	if _, after, ok := strings.Cut(version, ":"); ok {
		version = after
	}
	version, _, _ = strings.Cut(version, "-")
	version, _, _ = strings.Cut(version, "+")
	return version
}

// enterNewest makes a folder of this run in the folder, with the programs.
func (c *campaign) enterNewest() (*harness.Debian, error) {
	d := &harness.Debian{Root: c.newest, Enter: filepath.Join(c.testdata, "peers", "inside.sh")}
	if err := d.Prepare(filepath.Join(c.testdata, "truth", "newest")); err != nil {
		return nil, err
	}
	return d, os.CopyFS(d.Outer(), os.DirFS(filepath.Join(c.testdata, "truth", "jobs")))
}

// measureNewest starts a program in the folder, and traces it.
func (c *campaign) measureNewest(ctx context.Context, j newestJob, r *Row) error {
	d, err := c.enterNewest()
	if err != nil {
		return err
	}

	defer os.RemoveAll(d.Outer())

	argv := d.Inside(j.command, j.name, d.Inner())
	if j.command == "" {
		compiler := d.Inside("g++", "-O1", "-g", j.name, "-o", j.title())
		if err := compile(ctx, compiler[0], compiler[1:]...); err != nil {
			return err
		}
		argv = d.Inside("LD_PRELOAD="+j.preload, "./"+j.title(), "")
	}

	place, err := c.namedIn(j.folder, j.job)
	if err != nil {
		return err
	}
	return c.traceJob(ctx, j.job, argv, place, r)
}

// demoSays is the answer of the demo, whose pace the load of the machine changes.
var demoSays = regexp.MustCompile(`(?m)^(LEAK|GROWING).*(?s:.*)^WHERE +trainer\.py:31 `)

// newestDemo runs the demo in the folder.
func (c *campaign) newestDemo(ctx context.Context, command string, r *Row) error {
	d, err := c.enterNewest()
	if err != nil {
		return err
	}

	defer os.RemoveAll(d.Outer())

	content, err := os.ReadFile(c.allocscope)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.Outer("allocscope"), content, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(command, d.Outer("python3")); err != nil {
		return err
	}

	argv := d.Inside("PATH="+d.Inner()+":/usr/bin:/bin", "./allocscope", "demo", "--no-tui")
	demo := exec.CommandContext(ctx, argv[0], argv[1:]...)
	harness.OwnGroup(demo)
	output, err := demo.CombinedOutput()
	_ = os.WriteFile(filepath.Join(c.output, fileName(r.Name)+".log"), output, 0o600) // to look at
	if err != nil {
		return fmt.Errorf("demo: %w: %s", err, lastLine(string(output)))
	}

	r.Said, r.Outcome = "the line is not named", Undecided
	if found := demoSays.FindStringSubmatch(string(output)); found != nil {
		r.Said, r.Outcome = found[1]+", trainer.py:31", Right
	}
	return nil
}

// keepersSaid is the line of the tests about an interpreter: how many keepers are found.
var keepersSaid = regexp.MustCompile(`debian-sid-python3\.\d+ +(\d+) of (\d+) found; not: (.*)`)

// newestKeepers runs the programs of testdata/keepers that need no package, or one of the
// interpreter's.
func (c *campaign) newestKeepers(ctx context.Context, python string, r *Row) error {
	tests := exec.CommandContext(ctx, c.keepers, "-test.v", "-test.run",
		"^TestKeepers$/^programs_of_Python$")
	harness.OwnGroup(tests)
	tests.Dir = filepath.Join(c.testdata, "..", "tracer", "objects")
	tests.Env = append(os.Environ(), "ALLOCSCOPE_KEEPERS="+python)
	output, _ := tests.CombinedOutput() // its last line has the result
	_ = os.WriteFile(filepath.Join(c.output, fileName(r.Name)+".log"), output, 0o600) // to look at

	found := keepersSaid.FindStringSubmatch(string(output))
	if found == nil {
		return fmt.Errorf("no line about %s: %s", python, lastLine(string(output)))
	}

	r.Said = fmt.Sprintf("%s of %s keepers", found[1], found[2])
	if found[1] != "0" && found[3] != "[]" {
		r.Said += "; not " + found[3]
	}
	r.Outcome = Right
	if lastLine(string(output)) != "PASS" { // a name is wrong, or too many are missing
		r.Outcome = Wrong
	}
	return nil
}

// withNewest replaces the section about the newest runtimes in a page.
func withNewest(page string, results Results) string {
	from := strings.Index(page, newestHeading)
	if from < 0 {
		return page + newestSection(results)
	}
	rest := page[from+len(newestHeading):]
	next := strings.Index(rest, "\n## ")
	if next < 0 {
		return page[:from] + newestSection(results)
	}
	return page[:from] + newestSection(results) + rest[next:]
}

// newestSection is the section.
func newestSection(results Results) string {
	var text strings.Builder
	fmt.Fprint(&text, newestHeading+`
Debian sid with experimental, in one folder. `+"`make test-sid`"+` sets it up, runs the programs with a
default trace of each, and writes this section; `+"[truth.md](reference/truth.md)"+` says how answers are
judged. A leak that is suspected, and none yet, is undecided: the trace was too short.

`)
	fmt.Fprintf(&text, "%s.\n\n", upper(results.Parts[newest].text()))
	fmt.Fprint(&text, "| program | versions | truth | said | outcome |\n|---|---|---|---|---|\n")
	for _, r := range results.Rows {
		if r.Part == newest {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Source, cell(r.Truth),
				cell(r.Said), r.Outcome)
		}
	}
	return text.String()
}
