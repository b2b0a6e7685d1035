package reexec

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
)

const (
	countName = "allocscope-test-count"
	failName  = "allocscope-test-fail"
)

func init() {
	Register(countName, func(arguments []string) (status int) { return len(arguments) })
	Register(failName, Main(failName, func() error { return errors.New("it fails") }))
}

func TestRegister(t *testing.T) {
	for name, want := range map[string]struct {
		status int
		says   string
	}{
		countName: {status: 3},
		failName:  {status: 1, says: failName + ": it fails\n"},
	} {
		command := exec.Cmd{Path: Executable, Args: []string{name, "a", "b"}}
		out, err := command.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want.status || string(out) != want.says {
			t.Errorf("%s: %v, says %q", name, err, out)
		}
	}
	if slices.Contains([]string{countName, failName}, os.Args[0]) {
		t.Error("the test itself has the name of a task")
	}
}
