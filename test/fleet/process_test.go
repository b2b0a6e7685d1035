package fleet

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// deadline is how long a test waits for something that is bound to happen. No result depends on it.
const deadline = 4 * time.Minute

// program returns the path of a program that the run script has built or installed.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set: run the tests by make test-fleet", variable)
	}
	return path
}

func allocscope(t *testing.T) string { return program(t, "ALLOCSCOPE_PROGRAM") }

// root is the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	path := tracertest.Must(filepath.Abs("../.."))(t)
	return path
}

// A process is a program that runs until the test ends.
type process struct {
	*exec.Cmd
	log  string // the file with its output
	done chan struct{}
}

// start starts a program with its output in a file. The test prints the end of it if it fails.
func start(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(command.Path)+".log"))
	tracertest.NoError(t, err)
	defer log.Close()
	if command.Stdout == nil {
		command.Stdout = log
	}
	command.Stderr = log

	p := &process{Cmd: command, log: log.Name(), done: make(chan struct{})}
	tracertest.NoError(t, command.Start())
	go func() {
		command.Wait() //nolint:errcheck // the state has it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s:\n%s", command, p.output(t))
		}
	})
	return p
}

// stop ends the process, and waits for its end. One that does not end by the signal is killed.
func (p *process) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	p.Process.Signal(signal) //nolint:errcheck // it may have ended
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.Process.Kill() //nolint:errcheck // it may have ended
		<-p.done
		t.Errorf("%s: not ended a minute after %v\n%s", p.Path, signal, p.output(t))
	}
}

// output returns the last output of the process.
func (p *process) output(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(p.log)
	if err != nil {
		t.Error(err)
	}
	return string(raw[max(0, len(raw)-8<<10):])
}

// await calls a function, which returns the missing part, until there is none.
func await(t *testing.T, what string, missing func() string) {
	t.Helper()
	last := ""
	for end := time.Now().Add(deadline); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if last = missing(); last == "" {
			return
		}
	}
	t.Fatalf("%s: %s", what, last)
}

// awaitPage waits until a page is there.
func awaitPage(t *testing.T, what, url string) {
	t.Helper()
	await(t, what, func() string {
		if _, err := get(url); err != nil {
			return err.Error()
		}
		return ""
	})
}

// freePorts returns TCP ports of loopback that nobody listens on.
func freePorts(t *testing.T, count int) []int {
	t.Helper()
	ports := make([]int, count)
	for i := range ports {
		l := tracertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// run runs a command to its end and returns its output.
func run(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, out, stderr.Bytes())
	}
	return string(out)
}

// get returns the body of a page, or why there is none.
func get(url string) (string, error) {
	return bodyOf(http.Get(url))
}

// bodyOf returns the body of a response, or why there is none.
func bodyOf(response *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(io.LimitReader(response.Body, 256<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", response.Request.URL, response.Status, body)
	}
	return string(body), err
}
