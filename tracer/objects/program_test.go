package objects_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// whole makes the tests run every program on every interpreter: `make test-keepers`.
var (
	which    = os.Getenv("ALLOCSCOPE_KEEPERS")
	isNewest = strings.HasPrefix(which, "python")
	whole    = which == "all" || isNewest
)

var newestRoot = folderOf("ALLOCSCOPE_NEWEST", "/var/cache/allocscope/sid")

// folderOf is a folder that a variable of the environment may name.
func folderOf(variable, folder string) string {
	return cmp.Or(os.Getenv(variable), folder)
}

// A program of testdata/keepers, with the truth that it has written in comments.
type program struct {
	file  string
	needs string // a Python package, libkeep, or nothing
	// keptBy are the roots that keep the objects: none for "nothing". also are further ones that gc
	// does not see. unseen is set if it sees none of them.
	keptBy, also []string
	unseen       bool
	garbage      bool // the search knows that they are
	each         bool // all variables of keptBy keep all samples, each beside the others
	// container is the type of the first container on the path; entries its number of entries, -1:
	// the number of the objects noted.
	container string
	entries   int64
}

func (p program) name() string {
	return strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))
}

func (p program) isTrue(root string) bool {
	return slices.Contains(p.keptBy, root) || slices.Contains(p.also, root)
}

// programs returns the programs with one of the extensions, sorted by name.
func programs(t *testing.T, extensions ...string) (all []program) {
	t.Helper()
	files := tracertest.Must(os.ReadDir(tracertest.Source("keepers")))(t)
	for _, file := range files {
		if slices.Contains(extensions, filepath.Ext(file.Name())) {
			if p, ok := readProgram(t, "keepers/"+file.Name()); ok {
				all = append(all, p)
			}
		}
	}
	if len(all) == 0 {
		t.Fatal("no programs in testdata/keepers")
	}
	return all
}

// readProgram reads the comments at the head of a file; ok is false if it is none of the programs.
func readProgram(t *testing.T, file string) (p program, ok bool) {
	t.Helper()
	text := tracertest.Must(os.ReadFile(tracertest.Source(file)))(t)

	p = program{file: file, entries: -1}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(strings.TrimLeft(strings.TrimSpace(line), "#/* "), "*/ ")
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "KEPT BY":
			ok = true
			if value != "nothing" {
				p.keptBy = append(p.keptBy, value)
			}
		case "ALSO":
			p.also = append(p.also, value)
		case "NEEDS":
			p.needs = value
		case "EACH":
			p.each = true
		case "GARBAGE":
			p.garbage = true
		case "UNSEEN BY GC":
			p.unseen = true
		case "CONTAINER":
			if n, err := fmt.Sscanf(value, "%s %d", &p.container, &p.entries); n == 0 {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
		}
	}
	return p, ok
}

// A python is an interpreter that runs programs of testdata/keepers.
type python struct {
	name     string
	command  []string
	root     string   // the folder of its system; empty: this system's
	packages []string // that it has
}

// sharedTorch is a PyTorch whose TensorImpls count as a reference to their tensors: since 2.10.
const sharedTorch = "torch 2.10"

var withTorch = []string{"torch", "numpy", "PIL"}

// pythons returns the interpreters, and the Debian 13 with PyTorch 2.6 of testdata/peers if it is
// set up. ALLOCSCOPE_KEEPERS may name one of testdata/newest.sh, as python3.15: then it alone.
func pythons(t *testing.T) (all []python) {
	t.Helper()
	if isNewest {
		p := python{"debian-sid-" + which, []string{"/usr/bin/" + which}, newestRoot, nil}
		if which == "python3.14" { // sid's own, for which it has packages
			p.packages = append(slices.Clip(withTorch), sharedTorch)
		}
		return []python{p}
	}

	some := []string{"minors"}
	if whole {
		some = nil
	}
	interpreters := tracertest.Interpreters(t, some...)
	for _, name := range slices.Sorted(maps.Keys(interpreters)) {
		p := python{name: name, command: interpreters[name]}
		if len(p.command) > 1 { // chroot FOLDER PROGRAM
			p.root, p.command = p.command[1], p.command[2:]
		}
		if name == "system" {
			p.packages = withTorch
		}
		all = append(all, p)
	}

	root := filepath.Join(folderOf("ALLOCSCOPE_PEERS", "/var/cache/allocscope/peers"), "trixie")
	if _, err := os.Stat(root); err == nil {
		all = append(all, python{"debian-trixie-torch", []string{"/usr/bin/python3"}, root, withTorch})
	}
	return all
}

func (p python) canRun(one program) bool {
	return one.needs == "" || one.needs == "libkeep" || slices.Contains(p.packages, one.needs)
}

// run is the command that runs a file with the interpreter. One with a system of its own sees our
// files by way of /proc.
func (p python) run(
	t *testing.T, environment []string, file string, arguments ...string,
) *exec.Cmd {
	t.Helper()
	ours := ""
	command := append(append([]string{"env"}, environment...), p.command...)
	if p.root != "" {
		ours = fmt.Sprintf("/proc/%d/root", os.Getpid()) // where that system sees our files
		command = append([]string{tracertest.Source("peers/inside.sh"), p.root}, command...)
	}

	source := tracertest.Must(filepath.Abs(tracertest.Source(file)))(t)
	library := tracertest.BuildLibrary(t, "keepers/keep.c", "libkeep.so")
	command = append(command, "-B", "-W", "ignore", ours+source, ours+library)
	return exec.Command(command[0], append(command[1:], arguments...)...)
}

// A truth is a program's own output.
type truth struct {
	pid     int
	kind    string
	objects []uint64
	noted   int64
}

func readTruth(t *testing.T, target *tracertest.Target) (truth truth) {
	t.Helper()
	for _, line := range target.Await("done") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "ready":
			truth.pid, _ = strconv.Atoi(value)
		case "type":
			truth.kind = strings.TrimPrefix(value, "builtins.")
		case "objects":
			_, truth.objects = objects.NumbersOf(t, line)
		case "noted":
			truth.noted, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	if len(truth.objects) != 8 || truth.noted < 8 {
		t.Fatalf("the program says of itself: %+v", truth)
	}
	return truth
}

func openProcess(t *testing.T, pid int) *process.Process {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return p
}
