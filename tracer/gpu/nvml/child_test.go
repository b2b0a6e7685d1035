package nvml

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A program loads one NVML in its life, so each test that does has a child, which is the test binary again: these name the
// library and the bound on its answers.
const (
	childLibrary = "ALLOCSCOPE_TEST_NVML"
	childBound   = "ALLOCSCOPE_TEST_NVML_BOUND"
)

// said is what a child says of an order.
type said struct {
	Reading Reading
	Error   string
}

// beChild opens NVML and obeys until the end of its orders, a line of JSON for each.
func beChild(library string) {
	bound, err := time.ParseDuration(os.Getenv(childBound))
	if err != nil {
		panic(err)
	}
	monitor, err := open(newDriver(library), bound)
	say := func(s said, err error) {
		if err != nil {
			s.Error = err.Error()
		}
		text, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\ndone\n", text)
	}
	say(said{}, err)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "read":
			say(said{Reading: monitor.Read()}, nil)
		case "close":
			say(said{}, monitor.Close())
		case "open another":
			_, err := open(newDriver(library+".other"), bound)
			say(said{}, err)
		}
	}
}

// A stub is a child with a stand-in for NVML, whose answers are in a file.
type stub struct {
	t      *testing.T
	file   string
	target *tracertest.Target
	opened string // the error
}

func startStub(t *testing.T, bound time.Duration, library string, answers ...string) *stub {
	t.Helper()
	s := &stub{t: t, file: filepath.Join(t.TempDir(), "answers")}
	s.answer(answers...)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Env = append(os.Environ(), "NVML_STUB="+s.file, childLibrary+"="+library, childBound+"="+bound.String())
	s.target = tracertest.StartCommand(t, command)
	s.opened = s.hear().Error
	return s
}

// answer changes the answers from now on.
func (s *stub) answer(lines ...string) {
	s.t.Helper()
	part := s.file + ".part"
	if err := os.WriteFile(part, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(part, s.file); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stub) hear() (heard said) {
	s.t.Helper()
	lines := s.target.Await("done")
	if err := json.Unmarshal([]byte(strings.Join(lines, "")), &heard); err != nil {
		s.t.Fatalf("%q: %v", lines, err)
	}
	return heard
}

func (s *stub) order(what string) said {
	s.t.Helper()
	s.target.Say(what)
	return s.hear()
}

func (s *stub) read() Reading {
	s.t.Helper()
	return s.order("read").Reading
}

// readUntil reads until a reading is as it should be; the machine may be busy.
func (s *stub) readUntil(what string, good func(Reading) bool) Reading {
	s.t.Helper()
	var r Reading
	for range 10000 {
		if r = s.read(); good(r) {
			return r
		}
		time.Sleep(time.Millisecond)
	}
	s.t.Fatalf("%+v, want one day %s", r, what)
	return r
}
