package residency

import (
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

const (
	// minSpacing is the time between snapshots in which the CPU time accrues that one can spend,
	// however soon it follows the last one.
	minSpacing = time.Second

	// alwaysFullScanSeconds is the CPU time up to which processes are scanned as a whole, however
	// short the interval between snapshots.
	alwaysFullScanSeconds = 10e-3

	// endScanSeconds is the CPU time up to which they are at the end of the trace, which happens once.
	endScanSeconds = 0.5

	// initialSecondsPerByte is the cost of a scan before any was measured: 5 ms a GiB.
	initialSecondsPerByte = 5e-3 / (1 << 30)

	// minScanShare is the least share of the pages that a scan reads, so that it can be
	// extrapolated.
	minScanShare = 0.02
)

// A Budget bounds the CPU time of the page scans of traced processes. It sizes each scan by the
// expected cost.
type Budget struct {
	// Limit is of all scans. Its zero value has none: processes are scanned as a whole.
	Limit duty.Account

	// SecondsPerByte is the CPU time for one resident byte; 0: not measured yet.
	SecondsPerByte float64

	// fixedSeconds is the CPU time of a snapshot besides its page scans: reading the maps and the
	// contents of memory, and computing the rows.
	fixedSeconds float64
}

// ShareFor returns the share of the pages that may be scanned now of processes with so many
// resident bytes, at least minScanShare.
func (b *Budget) ShareFor(resident int64, now time.Time, atEnd bool) float64 {
	accrued := max(b.Limit.Accrue(now).Seconds(), b.Limit.Share()*minSpacing.Seconds())

	if b.SecondsPerByte == 0 {
		b.SecondsPerByte = initialSecondsPerByte
	}
	expected := b.SecondsPerByte * float64(max(resident, 1)) // of a scan of all pages
	allowed := accrued - b.fixedSeconds
	if expected <= max(alwaysFullScanSeconds, allowed) || atEnd && expected <= endScanSeconds {
		return 1
	}
	return max(minScanShare, allowed/expected)
}

// Learn records the cost of a snapshot: the scan of so many resident bytes, and all the rest. Both
// are exponential moving averages.
func (b *Budget) Learn(resident float64, scan, rest time.Duration) {
	const newestWeight = 0.3
	b.fixedSeconds += newestWeight * (rest.Seconds() - b.fixedSeconds)

	if resident < minSampledBytes {
		return // mostly the cost of system calls
	}
	b.SecondsPerByte += newestWeight * (scan.Seconds()/resident - b.SecondsPerByte)
}
