package mark

import (
	"strconv"
	"testing"
	"time"
)

const (
	nobody = 65534

	// guard is how long a test waits for an event that must happen; it is reached only where
	// something hangs.
	guard = 3 * time.Minute
)

func itoa(n int) string { return strconv.Itoa(n) }

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, isTrue func() bool) {
	t.Helper()
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
