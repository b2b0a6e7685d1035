package tracertest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// python is the distribution's.
const python = "/usr/bin/python3"

func TestMain(m *testing.M) {
	code := m.Run()
	Cleanup()
	os.Exit(code)
}

// An amount of memory.
type amount struct{ objects, bytes int64 }

// totals reads the answer of cuda.c and cuda.py to the order of that name: the library's own counts
// by kind. Kinds of which there is nothing are left out.
func totals(t *testing.T, lines []string) map[string]amount {
	t.Helper()
	read := map[string]amount{}
	for _, line := range lines {
		var kind string
		var a amount
		if n, err := fmt.Sscan(line, &kind, &a.objects, &a.bytes); n != 3 || err != nil {
			t.Fatalf("totals: %q", line)
		}
		if a != (amount{}) {
			read[kind] = a
		}
	}
	return read
}

// mappings returns the lines of /proc/PID/maps.
func mappings(t *testing.T, pid int) []string {
	t.Helper()
	raw := Must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)))(t)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
