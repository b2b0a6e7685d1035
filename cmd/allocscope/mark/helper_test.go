package mark

import (
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	nobody = 65534

	// guard is how long a test waits for an event that must happen; it is reached only where
	// something hangs.
	guard = 10 * time.Minute
)

func itoa(n int) string { return strconv.Itoa(n) }

var must = tracertest.NoError

// eventually waits until something is true.
func eventually(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
