package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestView(t *testing.T) {
	t.Run("until a signal", testViewSignal)
	t.Run("CPU time of dot", testViewDot)
	t.Run("refusals", testViewRefusals)
	t.Run("open", testViewOpen)
	t.Run("other machines", testViewAddress)
}

// everybodys is a directory that every user reaches and may write to.
func everybodys(t *testing.T) string {
	t.Helper()
	dir := tracertest.Must(os.MkdirTemp(filepath.Dir(binary), "view-"))(t)

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// tracedFolder is the folder of a trace that belongs to a user, with a profile that names that
// source.
func tracedFolder(t *testing.T, uid int, source string) string {
	t.Helper()
	module := &growth.Module{Path: "/bin/sh", BuildID: "c0ffee", Start: 0x1000, Limit: 0x9000}
	frame := growth.Frame{
		Function: "leak", File: source, Line: 1, Module: module, Address: 0x2000,
	}
	held := []growth.Holding{{
		Stack: &growth.Stack{ID: 1, Frames: []growth.Frame{frame}},
		Kind:  growth.KindHeap, InuseObjects: 1, InuseBytes: 1 << 20, ResidentBytes: 1 << 20,
	}}

	write := func(w io.Writer) error {
		return profile.Write(w, held, profile.Info{Interval: 1})
	}

	path := filepath.Join(everybodys(t), "out")
	writeFolder(t, path, uid, map[string]func(io.Writer) error{
		folder.GrowthFile: write, folder.WarmupFile: write, folder.PlateauFile: write,
		folder.SummaryFile: (&summary.Summary{}).Write,
	})
	return path
}

// writeFolder makes the folder of a trace that belongs to a user.
func writeFolder(t *testing.T, path string, uid int, files map[string]func(io.Writer) error) {
	t.Helper()
	dir := tracertest.Must(folder.Create(path, folder.Owner{UID: uid, GID: uid}, false))(t)
	defer dir.Close()

	for name, write := range files {
		must(t, dir.WriteFile(name, write))
	}
}

// viewing starts a view and waits for the address that it prints.
func viewing(t *testing.T, cmd *exec.Cmd) (c *command, url string) {
	t.Helper()
	c = begin(t, cmd)
	c.await("it prints its address", func() bool {
		return strings.HasSuffix(c.stdout.String(), "\n")
	})
	return c, strings.TrimSuffix(c.stdout.String(), "\n")
}

// fetch gets a page under a host.
func fetch(t *testing.T, url, host string) (status int, body string) {
	t.Helper()
	request := tracertest.Must(http.NewRequest(http.MethodGet, url, nil))(t)

	request.Host = host
	response := tracertest.Must(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	data := tracertest.Must(io.ReadAll(response.Body))(t)

	return response.StatusCode, string(data)
}

func testViewSignal(t *testing.T) {
	source := filepath.Join(everybodys(t), "leak.c")
	writeFile(t, source, "void *leak = malloc(1);\n", 0o644)
	for _, as := range []struct {
		uid    int
		signal syscall.Signal
		source int // the status of the page with the source
	}{{0, syscall.SIGINT, http.StatusForbidden}, {nobody, syscall.SIGTERM, http.StatusOK}} {
		cmd := allocscope(t, "view", tracedFolder(t, as.uid, source))
		if as.uid != 0 {
			unprivileged(cmd)
		}
		c, url := viewing(t, cmd)
		if !regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+/$`).MatchString(url) {
			t.Errorf("printed %q", url)
		}

		if status, body := fetch(t, url+"growth/top", ""); status != http.StatusOK ||
			!strings.Contains(body, "leak") {
			t.Errorf("status %d: %s", status, body)
		}
		if status, body := fetch(t, url+"growth/top", "evil.example"); status !=
			http.StatusMisdirectedRequest || strings.Contains(body, "leak") {
			t.Errorf("under a foreign name: status %d: %s", status, body)
		}

		if status, body := fetch(t, url+"growth/source?f=leak", ""); status != as.source ||
			strings.Contains(body, "void *leak = malloc(1);") != (status == http.StatusOK) {
			t.Errorf("source by UID %d: status %d: %s", as.uid, status, body)
		}

		c.signal(as.signal)
		c.mustEnd(0)
		if c.stderr.String() != "" {
			t.Errorf("stderr: %s", c.stderr.String())
		}
	}
}

// pprof waits for dot, whose time on a graph has no bound of its own.
func testViewDot(t *testing.T) {
	tools := everybodys(t)
	writeFile(t, filepath.Join(tools, "dot"),
		"#!/bin/sh\necho '<svg>'; ulimit -S -t; ulimit -S -c; echo '</svg>'\n", 0o755)
	cmd := allocscope(t, "view", tracedFolder(t, 0, "/src/leak.c"))
	cmd.Env = append(os.Environ(), "PATH="+tools+":/bin")
	_, url := viewing(t, cmd)
	if status, body := fetch(t, url+"growth/graph", ""); status != http.StatusOK ||
		!strings.Contains(body, "<svg>\n10\n0\n</svg>") {
		t.Errorf("status %d: %s", status, body)
	}
}

// Package view proves which browser is started, and the command for SSH.
func testViewOpen(t *testing.T) {
	where := everybodys(t)
	browser, seen := filepath.Join(where, "browser"), filepath.Join(where, "seen")
	writeFile(t, browser, "#!/bin/sh\nid -u > "+seen+".new; echo \"$1\" >> "+seen+".new; mv "+
		seen+".new "+seen+"\n", 0o755)
	cmd := allocscope(t, "view", tracedFolder(t, nobody, "/src/leak.c"), "--open")
	cmd.Env = append(cmd.Environ(), "BROWSER="+browser, "SUDO_UID="+itoa(nobody),
		"SUDO_GID="+itoa(nobody), "SSH_CONNECTION=203.0.113.7 50000 198.51.100.9 22")
	c, url := viewing(t, cmd)

	c.awaitLine("ssh -L ")
	port := strings.TrimSuffix(strings.TrimPrefix(url, "http://127.0.0.1:"), "/")
	mustSay(t, "stderr", c.stderr.String(), "-L "+port+":127.0.0.1:"+port+" 198.51.100.9")
	eventually(t, "the browser has started", func() bool { return exists(seen) })
	if text, err := os.ReadFile(seen); string(text) != itoa(nobody)+"\n"+url+"\n" {
		t.Errorf("the browser was started as %q, %v", text, err)
	}
	c.interrupt()

	// Root starts none, and serves all the same.
	cmd = allocscope(t, "view", tracedFolder(t, 0, "/src/leak.c"), "--open")
	cmd.Env = append(cmd.Environ(), "BROWSER="+browser)
	c, url = viewing(t, cmd)
	c.awaitLine("warn: open a browser: there is no user behind root")
	if status, _ := fetch(t, url, ""); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// Package folder proves which folders are a trace's.
func testViewRefusals(t *testing.T) {
	dir, missing := tracedFolder(t, 0, "/src/leak.c"), newFolder(t)
	taken := tracertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()

	for words, arguments := range map[string][]string{
		"there is no such folder":    {missing},
		"growth.pb.gz: no such file": {summaryFolder(t)},
		"holds no summary.json":      {t.TempDir()},
		"address already in use":     {dir, "--http", taken.Addr().String()},
		`"8080" is not HOST:PORT`:    {dir, "--http", "8080"},
	} {
		mustRefuse(t, allocscope(t, append([]string{"view"}, arguments...)...), missing, words)
	}
}

func testViewAddress(t *testing.T) {
	c, url := viewing(t, allocscope(t, "view", tracedFolder(t, 0, "/src/leak.c"), "--http",
		"0.0.0.0:0"))
	machine := tracertest.Must(os.Hostname())(t)

	port, found := strings.CutPrefix(url, "http://"+machine+":")
	if !found {
		t.Fatalf("printed %q", url)
	}

	c.await("it warns", func() bool { return strings.HasSuffix(c.stderr.String(), "\n") })
	mustSay(t, "stderr", c.stderr.String(), "warn: ", "0.0.0.0:"+strings.TrimSuffix(port, "/"),
		"no loopback address", "without a password")
	if status, _ := fetch(t, "http://127.0.0.1:"+port, machine); status != http.StatusOK {
		t.Errorf("under the machine's name: status %d", status)
	}
}
