package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/test/meter"
)

// Messages of the agent.
var (
	hasTraced = regexp.MustCompile(`: traced: `)
	hasTried  = regexp.MustCompile(`: traced: |: trace into |no space left`)
	isWatched = regexp.MustCompile(`: watched (from now on|on after)`)
)

var theAgent = partOf("agent")

// restarts starts the agent once more where it has not ended in order.
var restarts = []string{"sh", "-c", `for i in 1 2; do "$@" && exit; done; exit 1`, "sh"}

var agentFaults = []fault{
	ofAgent(fault{name: "agent"}),
	ofAgent(fault{name: "agent: ended at any time", until: isWatched}),
	ofAgent(fault{name: "agent: kill -9", wrapper: restarts, inject: killed(theAgent)}),
	ofAgent(fault{name: "agent: kill -9 of the trace", until: hasTried, inject: killTrace}),
	ofAgent(fault{name: "agent: stopped", inject: stop(theAgent)}),
	ofAgent(fault{name: "agent: 200 connections", inject: crowdConnections}),
	ofAgent(fault{
		name: "agent: 200 processes", prepare: crowdProcesses,
		check: checkAgent("more than 128 processes match"),
	}),
	ofAgent(fault{
		name: "agent: full spool", command: agent("--push-spool-size", "1KiB"),
		prepare: pushTo(unavailable), check: checkSpool,
	}),
	ofAgent(fault{
		name: "agent: server gone", prepare: pushTo(nil), check: checkAgent("push profiles: "),
	}),
	ofAgent(fault{
		name: "agent: server hangs", prepare: pushTo(hanging), check: checkAgent("push profiles: "),
	}),
	ofAgent(fault{
		name: "agent: damaged state", prepare: damageState, check: checkAgent("the state is damaged"),
	}),
	ofAgent(fault{
		name: "agent: full disk", until: hasTried, prepare: fullDisk, check: checkFullAgent,
	}),
}

// ofAgent completes a fault of the agent, with the parts that most have.
func ofAgent(f fault) fault {
	f.target = rank
	if f.command == nil {
		f.command = agent()
	}
	if f.until == nil {
		f.until = hasTraced
	}
	if f.check == nil {
		f.check = checkAgent("")
	}
	return f
}

// rankVariable marks the processes that the agent of a round watches.
const rankVariable = "CAMPAIGN_ROUND"

// rank starts a process that leaks.
func rank(r *round) (func(), error) {
	const text = `import time
kept = [bytearray(8 << 20)]
print("ready", flush=True)
while True:
    kept.append(bytearray(1 << 17))
    time.sleep(0.02)`
	command := exec.Command("/usr/bin/python3", "-c", text)
	command.Env = append(os.Environ(), rankVariable+"="+r.folder, "RANK=3", "WORLD_SIZE=8")
	return r.start(command, "", "ready")
}

// agent runs the agent, with more flags. It traces the rank within seconds.
func agent(more ...string) func(*round) []string {
	return func(r *round) []string {
		r.health = freeAddress()
		return append([]string{
			r.allocscope, "agent", "--directory", filepath.Join(r.folder, "agent"),
			"--env", rankVariable + "=" + r.folder, "--min-rss", "256KiB", "--speed", "400",
			"--duration", "2s", "--trace-every", "1h", "--overhead", "off",
			"--listen", "127.0.0.1:0", "--health", r.health,
		}, more...)
	}
}

// freeAddress is an address on which nobody listens.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer listener.Close()

	return listener.Addr().String()
}

// killTrace kills the trace that the agent runs, once it does.
func killTrace(r *round) error {
	for range 600 {
		if pids := meter.ChildrenOf(r.command.Process.Pid); len(pids) > 0 {
			return kill(unix.SIGKILL, func(*round) []int { return pids })(r)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("the agent has not traced")
}

// answers returns the fault of the answer of a page.
func answers(url, words string) error {
	client := http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()

	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), words) {
		return fmt.Errorf("%s: %s, %w: %.200s", url, response.Status, err, text)
	}
	return nil
}

// crowdConnections opens 200 connections, some with half a request, and asks meanwhile.
func crowdConnections(r *round) error {
	const count = 200
	address := ""
	for range 600 {
		_, address, _ = strings.Cut(r.said(), "metrics on http://")
		if address, _, _ = strings.Cut(address, "/metrics"); address != "" {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}

	var connections []net.Conn
	for i := range count {
		conn, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			return err
		}
		connections = append(connections, conn)
		if i%2 == 0 {
			_, _ = conn.Write([]byte("GET /metrics HTTP/1.1\r\n")) // it may be closed
		}
	}

	err := answers("http://"+r.health+"/healthz", "ok")
	err = errors.Join(err, answers("http://"+address+"/metrics", "allocscope_"))
	for _, conn := range connections {
		_ = conn.Close()
	}
	return errors.Join(err, answers("http://"+address+"/metrics", "allocscope_"))
}

// crowdProcesses starts 200 processes that the agent finds.
func crowdProcesses(r *round, _ *[]string) (func(), error) {
	const count = 200
	var all []*exec.Cmd
	end := func() {
		for _, process := range all {
			if process.Process.Signal(syscall.Signal(0)) != nil {
				r.lost++
			}
			_, _ = process.Process.Kill(), process.Wait()
		}
	}

	for range count {
		process := exec.Command("sleep", "1000")
		process.Env = []string{rankVariable + "=" + r.folder}
		if err := process.Start(); err != nil {
			end()
			return nil, err
		}

		all = append(all, process)
	}
	return end, nil
}

func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// hanging answers when its client has gone.
func hanging(_ http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	<-request.Context().Done()
}

// pushTo has the agent push to a server; nil: to none.
func pushTo(handler http.HandlerFunc) func(*round, *[]string) (func(), error) {
	return func(r *round, command *[]string) (func(), error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}

		*command = append(*command, "--push", "http://"+listener.Addr().String())
		if handler == nil {
			return func() {}, listener.Close()
		}

		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }() // it ends when it is closed
		return func() { _ = server.Close() }, nil
	}
}

// damageState gives the agent a state that none has written.
func damageState(r *round, _ *[]string) (func(), error) {
	random := make([]byte, 1000)
	for i := range random {
		random[i] = byte(r.random.Uint32())
	}

	texts := []string{
		"", "null", string(random), strings.Repeat("[", 1<<20), strings.Repeat("\x00", 4096),
		`{"schema":"allocscope-agent/1","processes":[{"pid":1,"age_ms":[`,
		`{"schema":"allocscope-agent/99"}`,
	}

	directory := filepath.Join(r.folder, "agent")
	if err := os.Mkdir(directory, 0o700); err != nil {
		return nil, err
	}

	text := texts[r.random.IntN(len(texts))]
	return func() {}, os.WriteFile(filepath.Join(directory, "state.json"), []byte(text), 0o600)
}

// checkAgent checks that the agent has ended in order, and has said something.
func checkAgent(words string) func(*round) error {
	return func(r *round) error {
		switch {
		case r.result != nil:
			return fmt.Errorf("the agent ended with %w", r.result)
		case !strings.Contains(r.said(), words):
			return fmt.Errorf("the agent has not said %q", words)
		case r.lost != 0:
			return fmt.Errorf("%d of the processes have ended", r.lost)
		}
		return nil
	}
}

// checkSpool checks that the spool has not outgrown its size.
func checkSpool(r *round) error {
	const most = 1 << 10
	var size int64
	err := filepath.WalkDir(filepath.Join(r.folder, "agent", "spool"),
		func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}

			info, err := entry.Info()
			if err == nil {
				size += info.Size()
			}
			return err
		})
	if size > most {
		err = errors.Join(err, fmt.Errorf("the spool has %d bytes, more than %d", size, most))
	}
	return errors.Join(err, checkAgent("")(r))
}

// checkFullAgent checks that an agent without room has ended in order, or has said why not.
func checkFullAgent(r *round) error {
	if !r.command.ProcessState.Exited() ||
		r.result != nil && !strings.Contains(r.said(), "no space left") {
		return fmt.Errorf("the agent ended with %w", r.result)
	}
	return nil
}
