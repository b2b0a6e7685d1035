package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// searchScope is the order in which the dynamic linker itself says that it searches, as resolved paths.
func searchScope(t *testing.T, program string, environment []string) (files []string) {
	t.Helper()
	command := exec.Command(program)
	command.Env = append(slices.Clone(environment), "LD_DEBUG=scopes", "LD_DEBUG_OUTPUT="+filepath.Join(t.TempDir(), "scopes"))
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	written, err := filepath.Glob(strings.TrimPrefix(command.Env[len(command.Env)-1], "LD_DEBUG_OUTPUT=") + ".*")
	if err != nil || len(written) != 1 {
		t.Fatalf("the dynamic linker has written %q, %v", written, err)
	}
	for line := range strings.Lines(string(readFile(t, written[0]))) {
		_, scope, ok := strings.Cut(line, "scope 0: ")
		if !ok {
			continue
		}
		for _, name := range strings.Fields(scope) { // the first object is the program, whose scope is everybody's
			path, err := filepath.EvalSymlinks(name)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, path)
		}
		return files
	}
	t.Fatal("the dynamic linker has told no scope")
	return nil
}

func loadOrder(t *testing.T, p *Process) (paths []string, err error) {
	t.Helper()
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	order, err := p.LoadOrder(maps)
	for _, m := range order {
		paths = append(paths, m.Path)
	}
	return paths, err
}

func TestTheLoadOrderIsThatOfTheDynamicLinker(t *testing.T) {
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	libraries := []string{"-pthread", "-Wl,--no-as-needed", "-lm", "-lresolv", "-lBrokenLocale"}
	for name, c := range map[string]struct {
		flags       []string
		environment []string
		files       int
	}{
		"plain":                    {[]string{"-pthread"}, nil, 3}, // program, libc, ld.so
		"libraries":                {libraries, nil, 6},
		"preloaded":                {libraries, []string{"LD_PRELOAD=" + preload}, 7},
		"at a fixed address":       {append(libraries, "-no-pie"), []string{"LD_PRELOAD=" + preload}, 7},
		"with the old hash":        {append(libraries, "-Wl,--hash-style=sysv"), nil, 6},
		"bound when it is started": {append(libraries, "-Wl,-z,now"), []string{"LD_BIND_NOW=1"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			program := tracertest.Build(t, "leak.c", c.flags...)
			environment := append(os.Environ(), c.environment...)
			want := searchScope(t, program, environment)
			if len(want) != c.files {
				t.Fatalf("the dynamic linker searches %q: the test is wrong", want)
			}
			command := exec.Command(program)
			command.Env = environment
			target := tracertest.StartCommand(t, command)
			target.Await("ready")
			got, err := loadOrder(t, open(t, target.PID()))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("load order %q, %v; the dynamic linker searches %q", got, err, want)
			}
		})
	}
}

func TestAStaticProgramHasNoLoadOrder(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread", "-static"))
	target.Await("ready")
	if got, err := loadOrder(t, open(t, target.PID())); !errors.Is(err, ErrNoLinkMap) {
		t.Errorf("%q, %v; want %v", got, err, ErrNoLinkMap)
	}
}

// It relocates itself, and lists itself for debuggers.
func TestAStaticProgramThatCanBeMovedLoadsItselfAlone(t *testing.T) {
	program := tracertest.Build(t, "leak.c", "-pthread", "-static-pie")
	target := tracertest.Start(t, program)
	target.Await("ready")
	if got, err := loadOrder(t, open(t, target.PID())); err != nil || !slices.Equal(got, []string{program}) {
		t.Errorf("%q, %v; want %q", got, err, program)
	}
}

func TestAnEndedProcessHasNoLoadOrder(t *testing.T) {
	p := stopped(t)
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	killed, err := os.FindProcess(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	killed.Kill()
	<-p.Exited(nil)
	if order, err := p.LoadOrder(maps); err == nil {
		t.Errorf("%+v", order)
	}
}
