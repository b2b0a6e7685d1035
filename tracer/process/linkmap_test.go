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

// linkerScope returns the search order that the dynamic linker itself prints, as resolved paths.
func linkerScope(t *testing.T, program string, environment []string) (files []string) {
	t.Helper()
	output := filepath.Join(t.TempDir(), "scopes")
	command := exec.Command(program)
	command.Env = append(slices.Clone(environment), "LD_DEBUG=scopes", "LD_DEBUG_OUTPUT="+output)
	tracertest.NoError(t, command.Run())
	written := must(filepath.Glob(output + ".*"))
	if len(written) != 1 {
		t.Fatalf("the dynamic linker has written %q", written)
	}

	// The first object is the program, whose scope is the global one.
	_, scope, ok := strings.Cut(string(readFile(t, written[0])), "scope 0: ")
	if !ok {
		t.Fatal("the dynamic linker has printed no scope")
	}
	scope, _, _ = strings.Cut(scope, "\n")
	for _, name := range strings.Fields(scope) {
		files = append(files, must(filepath.EvalSymlinks(name)))
	}
	return files
}

func loadOrder(p *Process) (paths []string, err error) {
	order, err := p.LoadOrder(must(p.Maps()))
	for _, m := range order {
		paths = append(paths, m.Path)
	}
	return paths, err
}

func TestLoadOrder(t *testing.T) {
	preload := "LD_PRELOAD=" + tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	libraries := []string{"-pthread", "-Wl,--no-as-needed", "-lm", "-lresolv", "-lBrokenLocale"}
	for name, c := range map[string]struct {
		flags       []string
		environment string
		files       int
	}{
		"plain":         {[]string{"-pthread"}, "", 3}, // program, libc, ld.so
		"libraries":     {libraries, "", 6},
		"preloaded":     {libraries, preload, 7},
		"no PIE":        {append(libraries, "-no-pie"), preload, 7},
		"DT_HASH":       {append(libraries, "-Wl,--hash-style=sysv"), "", 6},
		"bound at once": {append(libraries, "-Wl,-z,now"), "LD_BIND_NOW=1", 6},
	} {
		t.Run(name, func(t *testing.T) {
			program := tracertest.Build(t, "leak.c", c.flags...)
			environment := append(os.Environ(), c.environment)
			want := linkerScope(t, program, environment)
			if len(want) != c.files {
				t.Fatalf("the dynamic linker searches %q: the test is wrong", want)
			}

			command := exec.Command(program)
			command.Env = environment
			target := tracertest.StartCommand(t, command)
			target.Await("ready")
			got, err := loadOrder(open(t, target.PID()))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v; the dynamic linker searches %q", got, err, want)
			}
		})
	}

	// A static-pie program relocates itself, and lists itself for debuggers.
	static := tracertest.Build(t, "leak.c", "-pthread", "-static")
	staticPIE := tracertest.Build(t, "leak.c", "-pthread", "-static-pie")
	for program, want := range map[string][]string{static: nil, staticPIE: {staticPIE}} {
		t.Run(filepath.Base(program), func(t *testing.T) {
			target := tracertest.Start(t, program)
			target.Await("ready")
			got, err := loadOrder(open(t, target.PID()))
			if !slices.Equal(got, want) || errors.Is(err, ErrNoLinkMap) != (want == nil) {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}

	// Each file is once in the list of a process that has forged it into a ring.
	t.Run("ring", func(t *testing.T) {
		program := tracertest.Build(t, "linkmap.c", libraries...)
		want := linkerScope(t, tracertest.Build(t, "leak.c", libraries...), os.Environ())
		want[0] = program

		target := tracertest.Start(t, program)
		target.Await("ready")
		got, err := loadOrder(open(t, target.PID()))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d files %q, %v; the dynamic linker searches %q", len(got),
				got[:min(len(got), 20)], err, want)
		}
	})

	t.Run("ended process", func(t *testing.T) {
		p := startStopped(t)
		maps := must(p.Maps())
		kill(t, p)
		if order, err := p.LoadOrder(maps); err == nil {
			t.Errorf("%+v", order)
		}
	})
}
