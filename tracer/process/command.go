package process

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// Environment returns the named variables that were set when the program was executed, printable;
// later calls of setenv do not show. It is empty where the environment cannot be read.
func (c *counters) Environment(names ...string) map[string]string {
	values := make(map[string]string)
	raw, err := c.readLocking("environ", maxEnvironmentBytes)
	if err != nil {
		return values
	}

	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		name, value, ok := strings.Cut(string(entry), "=")
		if ok && slices.Contains(names, name) {
			values[name] = growth.Printable(value)
		}
	}
	return values
}

// readCommandLine returns the arguments, printable; nil where they cannot be read.
func (c *counters) readCommandLine() []string {
	raw, err := c.readLocking("cmdline", maxArgumentBytes)
	if err != nil || len(raw) == 0 {
		return nil
	}

	fields := bytes.Split(bytes.TrimRight(raw, "\x00"), []byte{0})
	arguments := make([]string, len(fields))
	for i, f := range fields {
		arguments[i] = growth.Printable(string(f))
	}
	return arguments
}

// Command returns a short name of the running program: its base name and the base name of the
// script it runs, "-m" with the module, or "-c" for code on the command line. A process can give
// itself any name, so it is cut after maxCommandBytes.
func (p *Process) Command() string { return growth.Truncate(p.command(), maxCommandBytes) }

const maxCommandBytes = 200

func (p *Process) command() string {
	if len(p.Arguments) == 0 {
		return p.Name
	}

	program := filepath.Base(p.Arguments[0])
	isPython, isValue := strings.HasPrefix(program, "python"), false
	for i, a := range p.Arguments[1:] {
		switch {
		case isValue:
			isValue = false
		case isPython && (a == "-W" || a == "-X"):
			isValue = true
		case a == "-c":
			return program + " -c"
		case a == "-m" && i+2 < len(p.Arguments):
			return program + " -m " + p.Arguments[i+2]
		case !strings.HasPrefix(a, "-"):
			return program + " " + filepath.Base(a)
		}
	}
	return program
}
