// Package target has how commands choose a process: by a PID as an argument or a flag, or by a text
// of its command line; and the command ps, which lists the processes to choose from.
package target

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tree"
)

// A Choice is the process that the user has chosen. The zero value is none.
type Choice struct {
	pid   int
	given bool // pid is
	name  string

	hasName bool // the command has --name
}

// String implements pflag.Value, for --pid.
func (c *Choice) String() string {
	if !c.given {
		return ""
	}
	return strconv.Itoa(c.pid)
}

// Type implements pflag.Value.
func (c *Choice) Type() string { return "PID" }

// Set implements pflag.Value.
func (c *Choice) Set(text string) error {
	pid, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	c.pid, c.given = pid, true
	return nil
}

// AddPID defines --pid of a command whose first argument is a PID, too. Shells complete both.
func (c *Choice) AddPID(command *cobra.Command, usage string) {
	const flag = "pid"
	command.Flags().VarP(c, flag, "p", usage)
	cli.CompleteFlag(command, flag, CompletePID)
	command.ValidArgsFunction = completeFirstPID
}

// AddName defines --name.
func (c *Choice) AddName(set *pflag.FlagSet) {
	c.hasName = true
	set.StringVar(&c.name, "name", "",
		"the one job that has this text in its command line, instead of a PID")
}

// IsGiven reports whether a process is chosen by a flag.
func (c *Choice) IsGiven() bool { return c.given || c.name != "" }

// maxCandidates are listed where no process is chosen.
const maxCandidates = 5

// Resolve returns the PID of the choice, by the arguments of a command too: none, or a PID. Without
// any, it returns 0 unless the command needs one. command is how the user calls it: "allocscope
// trace".
func (c *Choice) Resolve(arguments []string, command string, isNeeded bool) (int, error) {
	if err := c.addArguments(arguments, command); err != nil {
		return 0, exit.Usage(err)
	}

	switch {
	case c.given && c.name != "":
		return 0, exit.Usage(fmt.Errorf("--name %q and PID %d: give one of them", c.name, c.pid))
	case c.given && c.pid == os.Getpid():
		return 0, exit.Refuse(errSelf)
	case c.given:
		return c.pid, nil
	case c.name != "":
		return findByName(c.name, command)
	case isNeeded:
		return 0, exit.Usage(missing(command))
	}
	return 0, nil
}

// errSelf is the error for the PID of allocscope itself, which is what $$ becomes where a shell
// executes its last command in its own place.
var errSelf = errors.New("this PID is allocscope itself: a shell that runs a single command with -c " +
	"becomes that command, and so does $$ (name another process, or add \"; exit\" to the command)")

// addArguments takes the PID from the arguments.
func (c *Choice) addArguments(arguments []string, command string) error {
	if len(arguments) == 0 {
		return nil
	}

	pid, err := strconv.Atoi(arguments[0])
	switch {
	case err != nil:
		return c.notPID(arguments, command)
	case len(arguments) > 1:
		return fmt.Errorf("there is one argument too many: %q (%s PID)",
			units.Name(arguments[1]), command)
	case c.given && c.pid != pid:
		return fmt.Errorf("two PIDs are given: %d, and --pid %d", pid, c.pid)
	}
	c.pid, c.given = pid, true
	return nil
}

// notPID is the error for a text in place of a PID. A user who types the name of a job finds the
// flag for it there.
func (c *Choice) notPID(arguments []string, command string) error {
	usage := command + " PID"
	if name := strings.Join(arguments, " "); c.hasName && name != "" && name == growth.Printable(name) {
		usage += ", or " + command + " --name " + words.ShellQuote(name)
	}
	return fmt.Errorf("%q is not a PID (%s)", units.Name(arguments[0]), usage)
}

// missing is the error where no process is chosen, with some that could be.
func missing(command string) error {
	text := "name the process: " + command + " PID"
	all, err := tree.ListMachine()
	if err != nil {
		return errors.New(text)
	}

	candidates := worthTracing(all)
	if len(candidates) == 0 {
		return errors.New(text + " (allocscope ps --all lists the processes)")
	}
	shown := candidates[:min(len(candidates), maxCandidates)]
	return errors.New(text + "; candidates (allocscope ps shows more):\n" + shortTable(shown, 70))
}

// findByName returns the PID of the one job that has a text in its command line.
func findByName(name, command string) (int, error) {
	all, err := tree.ListMachine()
	if err != nil {
		return 0, err
	}

	found, err := tree.Match(all, name)
	if err != nil {
		return 0, exit.Refuse(fmt.Errorf("--name %q: %w (allocscope ps lists processes)", name, err))
	}
	if len(found) > 1 {
		sortByInterest(found)
		return 0, exit.Refuse(fmt.Errorf("--name %q is in the command lines of %d jobs (%s PID):\n%s",
			name, len(found), command, shortTable(found, maxMatchBytes)))
	}

	slog.Info(fmt.Sprintf("--name %q is PID %d: %s", name, found[0].PID, commandOf(found[0], 100)))
	return found[0].PID, nil
}

// maxMatchBytes of a command line that has the text of --name are printed: the part that
// distinguishes it from another one may come late.
const maxMatchBytes = 500

// shortTable lists processes by PID, RSS, age, and so many bytes of the command. It has no newline
// at its end.
func shortTable(processes []tree.Listed, commandBytes int) string {
	var text bytes.Buffer
	w := newTable(&text)
	fmt.Fprint(w, "PID\tRSS\tAGE\t  COMMAND\n")
	for _, l := range processes {
		fmt.Fprintf(w, "%d\t%s\t%s\t  %s\n", l.PID, sizeOf(l.RSS), ageOf(l.Age),
			commandOf(l, commandBytes))
	}
	_ = w.Flush() // a buffer takes all
	return string(bytes.TrimRight(text.Bytes(), "\n"))
}
