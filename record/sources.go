package record

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
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
func SourceReason(s source.Status) string {
	return words.SourceReason(summary.Source{Name: s.Name, Gap: s.Gap, SourceFailure: s.Failure()})
}

// sourcesOf are sources in the form of the summary.
func sourcesOf(all []source.Status) []summary.Source {
	var sources []summary.Source
	for _, s := range all {
		state := summary.SourceAttached
		switch {
		case s.Off:
			state = summary.SourceOff
		case !s.Attached:
			state = summary.SourceFailed
		}
		errno, _ := errors.AsType[unix.Errno](s.Err)
		failure := s.Failure()
		failure.File, failure.Detail = units.Name(failure.File), growth.Detail(failure.Detail)
		sources = append(sources, summary.Source{
			Name: s.Name, PID: s.PID, State: state, Producers: s.Producers,
			SourceFailure: failure, Errno: unix.ErrnoName(errno), Gap: s.Gap,
		})
	}
	return sources
}
