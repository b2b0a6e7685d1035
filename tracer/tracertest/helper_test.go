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

// mappings returns the lines of /proc/PID/maps.
func mappings(t *testing.T, pid int) []string {
	t.Helper()
	raw := Must(os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)))(t)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
