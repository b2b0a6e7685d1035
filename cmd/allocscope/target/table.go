package target

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tree"
)

// minLargeBytes is the RSS from which a process is large.
const minLargeBytes = 256 << 20

// worthTracing returns Python programs and large processes, the most likely one first, without
// allocscope itself.
func worthTracing(all []tree.Listed) []tree.Listed {
	worth := slices.DeleteFunc(slices.Clone(all), func(l tree.Listed) bool {
		return !l.IsPython && l.RSS < minLargeBytes || l.PID == os.Getpid()
	})
	sortByInterest(worth)
	return worth
}

// sortByInterest sorts processes that train first, then others, then launchers: each the largest
// first.
func sortByInterest(all []tree.Listed) {
	class := func(l tree.Listed) int {
		switch l.Role {
		case growth.RoleTrainer, growth.RoleRank:
			return 0
		case growth.RoleLauncher:
			return 2
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b tree.Listed) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(b.RSS, a.RSS),
			cmp.Compare(a.PID, b.PID))
	})
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// commandOf is the command line of a process in at most so many bytes.
func commandOf(l tree.Listed, limit int) string { return growth.Truncate(l.Command(), limit) }

func sizeOf(bytes int64) string {
	if bytes == growth.Unknown {
		return "-"
	}
	return units.Bytes(float64(bytes))
}

func orDash(text string) string { return cmp.Or(text, "-") }

// roleOf is the role of a process, with the number of a rank; a dash where it has none in a job.
func roleOf(l tree.Listed) string {
	switch l.Role {
	case growth.RoleRank:
		return fmt.Sprintf("%s %d", l.Role, l.Rank)
	case growth.RoleOther:
		return "-"
	}
	return string(l.Role)
}

// ageOf is an age in its largest unit: 45s, 3m, 7h, 12d.
func ageOf(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/day)
}
