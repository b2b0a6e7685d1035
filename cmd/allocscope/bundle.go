package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/export/bundle"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/doctor"
)

func newBundleCommand() *cobra.Command {
	var output string
	options := bundle.Options{Version: newVersion().String()}
	command := &cobra.Command{
		Use:   "bundle [DIR]",
		Short: "Make one file of a trace for a report of a problem, without your names",
		Long: `Bundle makes a .tar.gz of the folder of a trace, with the checks of doctor on this machine, and
its version. It needs no privilege but to read the folder. Without DIR it takes the latest trace, by
allocscope-latest.

It replaces the names of your functions, files, folders, processes, users, hosts, jobs, pods and
containers, your command lines and your marks. A name has the same pseudonym everywhere in the file.
What it keeps: numbers, times, PIDs and lines; the kernel and the distribution; names from Python's
library, from installed packages (site-packages) and from well-known libraries.

It prints what was replaced and what remains. Look into the file before you send it.`,
		Example: `  allocscope bundle
  allocscope bundle allocscope-4242-20261121-224502 --output report.tar.gz --hide ourpackage`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cli.Folder,
		RunE: func(command *cobra.Command, arguments []string) error {
			return runBundle(command, arguments, output, options)
		},
	}

	flags := command.Flags()
	flags.StringVarP(&output, "output", "o", bundle.Name+".tar.gz", "file to write")
	flags.BoolVar(&options.KeepNames, "keep-names", false, "leave all names in")
	flags.StringSliceVar(&options.Hide, "hide", nil,
		"replace these names as well: packages or libraries of yours in the list that it prints")
	cli.CompleteFiles(command, "output")
	return command
}

func runBundle(
	command *cobra.Command, arguments []string, output string, options bundle.Options,
) error {
	dir, owner, err := openTrace(command, arguments)
	if err != nil {
		return err
	}

	defer dir.Close()

	report := doctor.NewReport(0)
	options.Documents = map[string]any{"doctor.json": &report}
	options.Machine, options.Own = thisMachine(), ownWords(command.Root())
	var contents *bundle.Contents
	err = folder.CreateFile(output, owner, func(w io.Writer) (err error) {
		contents, err = bundle.Write(command.Context(), w, dir, options)
		return err
	})
	if err != nil {
		return err
	}

	_, err = io.WriteString(command.OutOrStdout(), bundleText(output, contents))
	return err
}

// ownWords are the names of a command, of the commands below it, and of their flags.
func ownWords(command *cobra.Command) []string {
	own := []string{command.Name()}
	command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		own = append(own, "--"+flag.Name)
		if flag.Shorthand != "" {
			own = append(own, "-"+flag.Shorthand)
		}
	})
	for _, below := range command.Commands() {
		own = append(own, ownWords(below)...)
	}
	return own
}

// thisMachine is the machine that allocscope runs on.
func thisMachine() bundle.Machine {
	m := bundle.Machine{Architecture: runtime.GOARCH, Kernel: "unknown"}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}

	file, err := os.Open("/etc/os-release")
	if err != nil {
		return m
	}

	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, 1<<16))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			m.System = units.Name(strings.Trim(value, `"'`))
		}
	}

	return m
}

// bundleText lists the contents of a bundle, and the data left out.
func bundleText(output string, c *bundle.Contents) string {
	var text strings.Builder
	line := func(name, format string, arguments ...any) {
		fmt.Fprintf(&text, "%-9s %s\n", name, fmt.Sprintf(format, arguments...))
	}

	line("wrote", "%s: %s", output, strings.Join(filesText(c.Files), ", "))
	if c.NamesKept {
		line("replaced", "nothing: all names, paths and command lines are in it")
	} else {
		line("replaced", "%s", replacedText(c.Replaced))
		line("remains", "numbers, times, PIDs, lines; %s", strings.Join(machineText(c.Machine), ", "))
		known := slices.IndexFunc(c.Packages, bundle.IsWellKnownPackage)
		if known < 0 {
			known = len(c.Packages)
		}

		if known > 0 {
			line("", "names in packages that may be yours: %s", strings.Join(c.Packages[:known], ", "))
		}

		if known < len(c.Packages) {
			line("", "names in well-known packages: %s", strings.Join(c.Packages[known:], ", "))
		}

		if len(c.Libraries) > 0 {
			line("", "names in %s of Linux distributions, CUDA and PyTorch, which bundle.json lists",
				units.Plural(len(c.Libraries), "library", "libraries"))
		}
	}

	for _, l := range c.LeftOut {
		line("left out", "%s: %s", l.File, l.Reason)
	}

	unpack := "tar -xzf " + words.ShellQuote(output)
	if slices.Contains(c.Files, folder.SummaryFile) {
		unpack += " && allocscope report " + bundle.Name
	}
	line("next", "look into it before you send it:")
	line("", "  %s", unpack)
	if len(c.Packages)+len(c.Libraries) > 0 && !c.NamesKept {
		line("", "if a package or a library that remains is yours, hide it: --hide NAME")
	}

	return text.String()
}

// filesText names the files, and counts the snapshots.
func filesText(files []string) (names []string) {
	snapshots := 0
	for _, file := range files {
		if strings.Contains(file, "/") {
			snapshots++
		} else {
			names = append(names, file)
		}
	}
	if snapshots > 0 {
		names = append(names, units.Plural(snapshots, "snapshot", "snapshots"))
	}

	return names
}

func machineText(m bundle.Machine) []string {
	parts := []string{"kernel " + m.Kernel}
	if m.System != "" {
		parts = append(parts, m.System)
	}

	return append(parts, "and which checks of doctor failed")
}

// replacedText counts the names by their kinds: "12 names of code, 3 folders, 1 host".
func replacedText(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		one, many := kind, kind+"s"
		switch kind {
		case "process":
			many = "processes"
		case "name":
			one, many = "name in code", "names in code"
		case "boot":
			one, many = "ID of a boot", "IDs of boots"
		case "gpu":
			one, many = "UUID of a GPU", "UUIDs of GPUs"
		}

		parts = append(parts, units.Plural(counts[kind], one, many))
	}

	if len(parts) == 0 {
		return "nothing: there were no private names"
	}

	return strings.Join(parts, ", ")
}
