package words

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
)

// NothingAlive is said instead of the stacks that are alive.
const NothingAlive = "nothing that was allocated since tracing started is alive yet"

// limitNames are the limits of setrlimit(2).
var limitNames = map[string]string{
	growth.LimitAddressSpace: "RLIMIT_AS", growth.LimitData: "RLIMIT_DATA", growth.LimitGiven: "--limit",
}

// Headroom is how much memory is left until a limit: "22.3 GiB of headroom in the machine".
func Headroom(l summary.Limit) string {
	left := units.Bytes(float64(l.HeadroomBytes)) + " of headroom "
	switch l.Of {
	case growth.LimitHigh:
		return left + "below the cgroup's memory.high"
	case growth.LimitAddressSpace, growth.LimitData:
		return left + "below the process's " + limitNames[l.Of]
	case growth.LimitGiven:
		return left + "below the limit given by --limit"
	}
	return left + "in the " + l.Of
}

// NoVerdictYet is when a trace is judged first.
func NoVerdictYet(first time.Duration) string {
	return "No verdict yet: the first check is at " + units.Duration(first)
}

// JudgedAt is when a trace was judged last.
func JudgedAt(at time.Duration) string { return "judged at " + units.Duration(at) }

// Since is the baseline of a trace, which may be the end of a warm-up that was seen.
func Since(baseline time.Duration, isWarm bool) string {
	switch {
	case isWarm:
		return "since the end of the warm-up at " + units.Duration(baseline)
	case baseline > 0:
		return "since " + units.Duration(baseline)
	}
	return "since tracing started"
}

// ScreenHelp is the help of the live screen, with the key for GPU memory where there is any.
func ScreenHelp(hasGPU bool) []string {
	var gpu []string
	if hasGPU {
		gpu = []string{"  g           show the stacks of GPU memory, or those of the host"}
	}
	return slices.Concat(keyHelp, gpu, scrollHelp)
}

var keyHelp = []string{
	"",
	"  q, Ctrl-C   end the trace, write the files and print the result;",
	"              Ctrl-C again quits without the files",
	"  m           mark this moment: type a text, Enter adds the mark, Esc cancels",
	"  e           make a trace with a duration longer, several times if need be",
	"  s           sort the stacks by rate, by bytes or by objects",
}

var scrollHelp = []string{
	"  ↑ ↓ k j     scroll the stacks by one; PgUp, PgDn by five; Home, End",
	"  ?           this help",
	"",
	"  The verdict is provisional until the trace ends.",
	"  The chart is RSS so far; below it are the judged phases, ▲ is a mark.",
	"  Stacks: their growth a minute, and what is alive.",
	"  Bars: the growth of each kind of memory; at the right is its size.",
	"  `allocscope trace --no-tui` prints plain lines instead.",
}
