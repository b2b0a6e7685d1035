package console

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/record"
)

// plainPeriod is the time between two status lines where there is no terminal.
const plainPeriod = 10 * time.Second

// EventRate counts events a second. The zero value is before the first moment.
type EventRate struct {
	elapsed time.Duration
	events  uint64
}

// Update returns the events a second since the last call; 0 where no time has passed.
func (r *EventRate) Update(elapsed time.Duration, events growth.Events) float64 {
	before := *r
	*r = EventRate{elapsed, events.Total()}

	if passed := (elapsed - before.elapsed).Seconds(); passed > 0 {
		return float64(r.events-before.events) / passed
	}
	return 0
}

// StatusLine shows the progress of a trace: as one line that is rewritten on a terminal, and as a
// line every plainPeriod elsewhere. It implements trace.Display.
type StatusLine struct {
	to        *Console
	lastPlain time.Duration
	rate      EventRate

	// Quiet shows nothing.
	Quiet bool
}

// NewStatusLine returns the status line of a trace.
func NewStatusLine(to *Console) *StatusLine { return &StatusLine{to: to} }

// Show implements trace.Display.
func (s *StatusLine) Show(p record.Progress) {
	if s.Quiet {
		return
	}

	line := s.line(p)
	if cost := words.OverheadShort(p.Overhead); cost != "" {
		line += "  " + cost
	}

	switch {
	case s.to.IsTerminal():
		s.to.setStatus(s.fit(line))
	case p.Sample.Elapsed-s.lastPlain >= plainPeriod:
		s.lastPlain = p.Sample.Elapsed
		fmt.Fprintln(s.to, line)
	}
}

// fit cuts a line so that it does not wrap: a wrapped line cannot be erased.
func (s *StatusLine) fit(line string) string {
	width, _, err := term.GetSize(int(s.to.terminal.Fd()))
	if err == nil && width > 0 {
		return fitStatus(line, width-1)
	}
	return line
}

// fitStatus leaves the last parts of a status out, which two spaces divide, until it has room.
func fitStatus(line string, width int) string {
	for len(line) > width {
		at := strings.LastIndex(line, "  ")
		if at < 0 {
			return line[:max(0, width)]
		}
		line = line[:at]
	}
	return line
}

func (s *StatusLine) line(p record.Progress) string {
	line := units.Duration(p.Sample.Elapsed.Truncate(time.Second))
	if p.End != 0 {
		line += words.OfTrace(p.End, p.UntilSettled)
	}

	if p.Sample.RSS != growth.Unknown {
		line += "  RSS " + units.Bytes(float64(p.Sample.RSS))
	}
	if p.Latest != nil {
		line += fmt.Sprintf("  traced %s in %s samples", units.Bytes(float64(p.Latest.Total())),
			units.Count(float64(p.Latest.LiveObjects)))
	}

	dropped, _ := p.TotalLosses()
	return line + fmt.Sprintf("  %s events/s  drops %s",
		units.Count(s.rate.Update(p.Sample.Elapsed, p.Events)), units.Count(float64(dropped)))
}

// Clear implements trace.Display. The result may be printed to the same file next, so that all
// lines must have been written.
func (s *StatusLine) Clear() {
	if s.to.IsTerminal() {
		s.to.setStatus("")
	}
	s.to.Flush()
}
