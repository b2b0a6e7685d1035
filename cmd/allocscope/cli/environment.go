package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// environmentPrefix begins the names of the variables.
const environmentPrefix = "ALLOCSCOPE_"

// variableOf is the environment variable of a flag: ALLOCSCOPE_SNAPSHOT_EVERY of --snapshot-every.
func variableOf(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromEnvironment sets the flags that the command line has not set from their variables, but for
// those named in except. environ is as os.Environ returns it. It returns the names of variables of
// the prefix that are of no flag. An error names the variable.
func FromEnvironment(
	set *pflag.FlagSet, environ []string, except ...string,
) (unknown []string, err error) {
	flags := make(map[string]*pflag.Flag)
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" {
			flags[variableOf(flag.Name)] = flag
		}
	})

	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, environmentPrefix) {
			continue
		}

		flag := flags[name]
		switch {
		case flag == nil:
			unknown = append(unknown, name)
			continue
		case flag.Changed || slices.Contains(except, flag.Name):
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return unknown, fmt.Errorf("read the environment: %w",
				valueError(name, flag, value, err))
		}
		flag.Changed = true
	}

	slices.Sort(unknown)
	return unknown, nil
}
