package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	traceTime   = 20 * time.Second
	caseTimeout = 10 * time.Minute
)

// check runs a case.
func (c testCase) check(ctx context.Context, s settings) (r result) {
	log, err := s.logFile(c)
	if err != nil {
		r.err = err
		return r
	}
	defer log.Close()
	r.log = log.Name()

	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()

	switch c.root {
	case "container":
		r.err = c.checkImage(ctx, s, &r, log)
		return r
	case "emulated":
		r.err = c.checkForeign(ctx, s, &r, log)
		return r
	}

	env := []string{"FILE=" + filepath.Join(filesFolder, c.file)}
	if c.outside {
		env = []string{"FILE=" + filepath.Join(s.dist, c.file)}
	}
	copied, err := mountRoot(s, filepath.Join(s.roots, c.root), env, log)
	if err != nil {
		r.err = err
		return r
	}

	r.err = c.checkIn(ctx, copied, &r)
	r.err = errors.Join(r.err, copied.unmount())
	return r
}

// checkIn installs, traces, removes, and looks for leftovers.
func (c testCase) checkIn(ctx context.Context, copied *root, r *result) error {
	if c.prepare != "" {
		if err := copied.run(ctx, c.prepare, c.outside); err != nil {
			return err
		}
	}
	before, err := takeState(copied.merged)
	if err != nil {
		return err
	}

	began := time.Now()
	if err := copied.run(ctx, c.install, c.outside); err != nil {
		return err
	}
	r.install = time.Since(began)

	if err := c.use(ctx, copied, r, began); err != nil {
		return err
	}

	if err := copied.run(ctx, c.remove, c.outside); err != nil {
		return err
	}
	return before.compare(copied, c.kept)
}

// use calls the installed program. Its files are in a folder that is then removed.
func (c testCase) use(ctx context.Context, copied *root, r *result, began time.Time) error {
	const folder = "/root/traces"
	if err := copied.run(ctx, "mkdir "+folder, false); err != nil {
		return err
	}

	if c.hasDemo {
		if err := c.demo(ctx, copied, folder, r); err != nil {
			return err
		}
		r.verdict = time.Since(began)
	}

	version, err := copied.output(ctx, c.program+" version")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(version, "allocscope "+c.version+" ") {
		return fmt.Errorf("allocscope version says %q, but the SBOM's name %s", version, c.version)
	}

	doctor, err := copied.output(ctx, c.program+" doctor")
	if err != nil {
		return err
	}
	if !strings.Contains(doctor, "\nReady: ") {
		return errors.New("allocscope doctor: not ready")
	}

	for _, l := range c.leaks {
		inside := filepath.Join(folder, l.name)
		if err := copied.run(ctx, "mkdir "+inside, false); err != nil {
			return err
		}
		said, err := c.trace(ctx, copied, l, inside, inside+"/trace")
		if err != nil {
			return fmt.Errorf("trace of %s: %w", l.name, err)
		}
		r.traces = append(r.traces, said)
		if r.verdict == 0 {
			r.verdict = time.Since(began)
		}
	}
	return copied.run(ctx, "rm -r "+folder, false)
}

// demo runs the demo, whose leak must be named.
func (c testCase) demo(ctx context.Context, copied *root, folder string, r *result) error {
	said, err := copied.output(ctx, fmt.Sprintf("cd %s; %s demo -d %s", folder, c.program,
		traceTime))
	if err != nil {
		return err
	}
	for _, want := range []string{"GROWING", "keep_learned()", "kept by trainer.learned"} {
		if !strings.Contains(said, want) {
			return fmt.Errorf("allocscope demo does not say %q", want)
		}
	}
	r.traces = append(r.traces, "demo: keep_learned()")
	return nil
}

// A state has the data that installing and tracing may not change.
type state struct {
	files  listing
	mounts map[string]string // lines of /proc/self/mountinfo by their first field, the ID
	pinned int               // files in the bpffs
}

const bpffs = "/sys/fs/bpf"

func takeState(merged string) (s state, err error) {
	if s.files, err = list(merged); err != nil {
		return s, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return s, err
	}

	s.mounts = make(map[string]string)
	for line := range strings.Lines(string(mounts)) {
		id, _, _ := strings.Cut(line, " ")
		s.mounts[id] = strings.TrimSpace(line)
	}
	pinned, err := os.ReadDir(bpffs)
	s.pinned = len(pinned)
	return s, err
}

// compare returns an error that names the leftovers.
func (s state) compare(copied *root, kept []string) error {
	now, err := takeState(copied.merged)
	if err != nil {
		return err
	}

	lines := left(s.files, now.files, kept, copied.lower, copied.merged)
	for id, line := range now.mounts { // others of this machine may have ended theirs
		if _, wasThere := s.mounts[id]; !wasThere {
			lines = append(lines, "left: mount "+line)
		}
	}
	if now.pinned != s.pinned {
		lines = append(lines, "changed: "+bpffs)
	}
	if len(lines) == 0 {
		return nil
	}

	fmt.Fprintf(copied.log, "\n== what is left\n%s\n", strings.Join(lines, "\n"))
	return fmt.Errorf("removed, but %d entries differ: %s", len(lines), lines[0])
}
