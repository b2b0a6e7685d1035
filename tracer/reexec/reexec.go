// Package reexec has the running executable do another task, in a process of its own whose argument
// 0 is the name of the task. It imports hardly anything, so that such a process starts fast.
package reexec

import "os"

// Executable is the running executable, even if another file has taken its path since.
const Executable = "/proc/self/exe"

// Register has a task take over if this process has its name. The task gets the arguments of the
// process, and the process exits with the status that it returns. An init function calls Register:
// then most of the program has not started yet.
func Register(name string, task func(arguments []string) (status int)) {
	if len(os.Args) > 0 && os.Args[0] == name {
		os.Exit(task(os.Args))
	}
}

// Main makes a task of a function that can fail. It reports the error on standard error.
func Main(name string, run func() error) func(arguments []string) (status int) {
	return func([]string) (status int) {
		if err := run(); err != nil {
			_, _ = os.Stderr.WriteString(name + ": " + err.Error() + "\n")
			return 1
		}
		return 0
	}
}
