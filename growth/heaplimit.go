package growth

// A HeapLimit is the limit of a trace's findings in a heap whose probes are open in bursts only. It
// depends on the malloc of the process.
type HeapLimit string

// The limits of mallocs.
const (
	// HeapUnchecked: no object can be checked from outside, so that call sites stay undecided.
	HeapUnchecked HeapLimit = "unchecked"
	// HeapUnknownVersion is HeapUnchecked of a malloc whose objects can be checked in versions of
	// another layout.
	HeapUnknownVersion HeapLimit = "unknown-version"
	// HeapFreedLooksAlive: up to a third of the freed memory looks alive, so that call sites may
	// stay unnamed for long.
	HeapFreedLooksAlive HeapLimit = "freed-looks-alive"
	// HeapFreeUnmeasured: free memory inside malloc is not measured.
	HeapFreeUnmeasured HeapLimit = "free-unmeasured"
	// HeapUnlimited: all is found.
	HeapUnlimited HeapLimit = "unlimited"
)

// A HeapMode is how allocations are probed.
type HeapMode string

// The heap modes, the most expensive first.
const (
	HeapFull   HeapMode = "full"   // every call is probed
	HeapBursts HeapMode = "bursts" // calls are probed in bursts, and their objects tracked between
	HeapOff    HeapMode = "off"    // even bursts cost too much, or source heap is off
)
