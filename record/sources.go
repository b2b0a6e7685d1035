package record

import (
	"cmp"
	"fmt"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/source"
)

// SourceName names a source.
func SourceName(s source.Status) string {
	if s.PID == 0 {
		return "source " + s.Name
	}
	return fmt.Sprintf("source %s of PID %d", s.Name, s.PID)
}

// SourceReason is why a source is not attached, or its gap; empty where there is nothing to report.
func SourceReason(s source.Status) string { return cmp.Or(words.SourceGap(s.Gap), s.Reason) }
