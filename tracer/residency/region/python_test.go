package region

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// interpreters are the commands of the Pythons of this machine: the system's, those of pyenv from 3.8 on, those of other
// releases of Debian.
func interpreters() map[string][]string {
	found := map[string][]string{"system": {"/usr/bin/python3"}}
	for _, version := range []string{"3.8", "3.9", "3.1?"} {
		others, _ := filepath.Glob(filepath.Join(os.Getenv("HOME"), ".pyenv/versions", version+".*/bin/python3"))
		for _, path := range others {
			found[filepath.Base(filepath.Dir(filepath.Dir(path)))] = []string{path}
		}
	}
	for _, release := range releases() {
		found[filepath.Base(release)] = []string{"chroot", release, "/usr/bin/python3"}
	}
	return found
}

func TestThereAreAsManyArenasOfPythonAsItSays(t *testing.T) {
	script, err := os.ReadFile(tracertest.Source("arenas.py"))
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range interpreters() {
		t.Run(name, func(t *testing.T) {
			running := tracertest.Start(t, command[0], append(command[1:], "-c", string(script))...)
			var count, size uint64
			for _, line := range running.Await("ready") {
				if strings.Contains(line, "bytes/arena") {
					fmt.Sscanf(line, "%d arenas * %d bytes/arena", &count, &size)
				}
			}
			target := openTarget(t, running.PID())
			regions := target.classify()
			arenas := of(regions, Python)
			if count < 10 || uint64(len(arenas)) != count || bytesOf(arenas) != count*size {
				t.Errorf("%d arenas of %d bytes, want %d of %d\n%s", len(arenas), bytesOf(arenas), count, count*size, show(regions))
			}
		})
	}
}
