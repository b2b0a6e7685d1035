package mark

import (
	"strconv"
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

var eventually = tracertest.Eventually
