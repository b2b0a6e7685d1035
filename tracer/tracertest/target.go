// Package tracertest builds and drives the programs of known behaviour that the tests trace.
package tracertest

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// NeedsRoot fails the test where the user is not root, since a skipped test would prove nothing.
// With -short, as in `make quick`, it skips the test.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}

	if testing.Short() {
		t.Skip("needs root, and -short leaves it out")
	}
	t.Fatal("needs root: run `make test`, which asks sudo")
}

// must ends the test if something that it needs has failed.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

// Testdata is the variable that names the project's testdata folder, for tests that run outside of
// the project. Unset: it is beside go.mod, above the folder of the test's package.
const Testdata = "TEST_DATA"

// testdata is found at the start: a test may change its folder. The path of this file would not
// do, as a program that is built with -trimpath does not know it.
var testdata = cmp.Or(os.Getenv(Testdata), findTestdata())

func findTestdata() string {
	folder, _ := os.Getwd()
	for folder != filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			break
		}
		folder = filepath.Dir(folder)
	}
	return filepath.Join(folder, "testdata")
}

// Source is the path of a file in the project's testdata folder.
func Source(name string) string { return filepath.Join(testdata, name) }

// Kept is the variable that names a folder of built programs, for machines without a compiler and
// for test programs that share them. Build finds them there and leaves new ones there, each beside
// its Recipe. Unset: Build uses a temporary folder.
const Kept = "TEST_TARGETS"

// Recipe is the file beside a program in the folder of Kept, by which a compiler of another
// architecture can build it, too: the compiler and its arguments, as JSON.
const Recipe = "recipe.json"

var builds struct {
	sync.Mutex
	dir string
}

// Build compiles a C or C++ program of testdata with gcc and returns its path. The same flags build
// it once.
func Build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	if slices.Contains(flags, "-shared") {
		name = "lib" + name + ".so"
	}
	return compile(t, source, name, flags)
}

// BuildLibrary is Build for a shared library whose soname programs know, such as libcuda.so.1. Its
// file has that name, too.
func BuildLibrary(t testing.TB, source, name string, flags ...string) string {
	t.Helper()
	return compile(t, source, name, append([]string{"-shared", "-fPIC", "-Wl,-soname," + name},
		flags...))
}

func compile(t testing.TB, source, name string, flags []string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	path := pathOf(t, source, name, flags)
	if _, err := os.Stat(path); err == nil {
		return path
	}

	compiler := "gcc"
	if filepath.Ext(source) == ".cc" {
		compiler = "g++"
	}

	// Another test program may build the same at this moment. The first file stays: it may run.
	unfinished := fmt.Sprint(path, ".", os.Getpid())
	arguments := append([]string{"-O2", "-g", "-Wall", Source(source), "-o", unfinished}, flags...)
	if out, err := exec.Command(compiler, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s(apt-get install gcc g++ libc6-dev)", compiler,
			strings.Join(arguments, " "), err, out)
	}

	if os.Getenv(Kept) != "" {
		arguments[slices.Index(arguments, unfinished)] = path
		leaveRecipe(t, filepath.Dir(path), append([]string{compiler}, arguments...))
	}
	if err := os.Link(unfinished, path); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	must(t, os.Remove(unfinished))
	return path
}

func leaveRecipe(t testing.TB, folder string, command []string) {
	t.Helper()
	raw, err := json.Marshal(command)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, Recipe), raw, 0o600))
}

// pathOf returns the path of the built file. It is the same for the same source and flags.
func pathOf(t testing.TB, source, name string, flags []string) string {
	t.Helper()
	parent := os.Getenv(Kept)
	if parent == "" && builds.dir == "" {
		dir, err := os.MkdirTemp("", "allocscope-test-")
		must(t, err)

		builds.dir = dir
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q", source, flags))
	dir := filepath.Join(cmp.Or(parent, builds.dir), hex.EncodeToString(key[:8]))
	must(t, os.MkdirAll(dir, 0o700))
	return filepath.Join(dir, name)
}

// Cleanup removes the files that Build has made, except in the folder that Kept names. TestMain
// calls it.
func Cleanup() {
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
}

// A Target is a running program that takes orders and answers by lines.
type Target struct {
	*exec.Cmd
	t     testing.TB
	input io.WriteCloser
	lines *bufio.Scanner
}

// Start runs a program; it ends with the test.
func Start(t testing.TB, path string, arguments ...string) *Target {
	t.Helper()
	return StartCommand(t, exec.Command(path, arguments...))
}

// StartCommand is Start for a command with settings of its own.
func StartCommand(t testing.TB, command *exec.Cmd) *Target {
	t.Helper()
	input, err := command.StdinPipe()
	must(t, err)

	output, err := command.StdoutPipe()
	must(t, err)

	command.Stderr = os.Stderr
	must(t, command.Start())

	target := &Target{Cmd: command, t: t, input: input, lines: bufio.NewScanner(output)}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	return target
}

// PID of the program.
func (g *Target) PID() int { return g.Process.Pid }

// Say sends a line.
func (g *Target) Say(line string) {
	g.t.Helper()
	if _, err := io.WriteString(g.input, line+"\n"); err != nil {
		g.t.Fatalf("send %q to the target: %v", line, err)
	}
}

// awaitLimit is the time after which a program is taken to hang.
const awaitLimit = 10 * time.Minute

// Await reads lines up to and including the given one. It returns those before it.
func (g *Target) Await(last string) []string {
	g.t.Helper()
	hangs := time.AfterFunc(awaitLimit, func() {
		g.t.Logf("the target hangs, where its threads are:\n%s", whereThreadsAre(g.PID()))
		g.Process.Kill()
	})
	defer hangs.Stop()

	var before []string
	for g.lines.Scan() {
		if g.lines.Text() == last {
			return before
		}

		before = append(before, g.lines.Text())
	}
	g.t.Fatalf("the target ended before it printed %q; it printed %q", last, before)
	return nil
}

// Do gives orders one after another. It returns the program's output on the last one.
func (g *Target) Do(orders ...string) (printed []string) {
	g.t.Helper()
	for _, order := range orders {
		g.Say(order)
		printed = g.Await("done")
	}
	return printed
}

// whereThreadsAre returns the kernel's data on each thread: its system call, and the stack in it.
func whereThreadsAre(pid int) string {
	var said strings.Builder
	for _, name := range []string{"syscall", "stack"} {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", pid, name))
		for _, file := range files {
			text, err := os.ReadFile(file)
			fmt.Fprintln(&said, file, string(text), err)
		}
	}
	return said.String()
}

// Hangup closes the program's input and waits until it has exited.
func (g *Target) Hangup() {
	g.input.Close()
	g.Wait()
}
