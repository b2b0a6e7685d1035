package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

const plainEvery = 10 * time.Second // between lines where there is no terminal

// A display tells how the trace goes.
type display interface {
	// show says where the trace stands, after each sample. latest is nil before the first snapshot.
	show(sample growth.Sample, latest *growth.Snapshot, events tracer.Events, losses []tracer.Loss, overhead *summary.Overhead)
	// clear takes away what is shown, before the result is printed. It may be called again.
	clear()
}

// status tells how the trace goes: one line that is rewritten on a terminal, a line now and then elsewhere.
type status struct {
	to        *screen
	terminal  *os.File      // nil where there is none
	duration  time.Duration // 0: until Ctrl-C
	lastPlain time.Duration
	pace      pace
}

// A pace is how many events there are a second.
type pace struct {
	elapsed time.Duration
	events  uint64
}

// at is the pace since the moment before; 0 where no time has passed.
func (p *pace) at(elapsed time.Duration, events tracer.Events) float64 {
	before := *p
	*p = pace{elapsed, events.Total()}
	if passed := (elapsed - before.elapsed).Seconds(); passed > 0 {
		return float64(p.events-before.events) / passed
	}
	return 0
}

func newStatus(to *screen, duration time.Duration) *status {
	file, ok := to.w.(*os.File)
	s := &status{to: to, duration: duration}
	if ok && term.IsTerminal(int(file.Fd())) {
		s.terminal = file
	}
	return s
}

// show implements display.
func (s *status) show(sample growth.Sample, latest *growth.Snapshot, events tracer.Events, losses []tracer.Loss, overhead *summary.Overhead) {
	line := s.line(sample, latest, s.pace.at(sample.Elapsed, events), losses)
	if cost := words.OverheadShort(overhead); cost != "" {
		line += "  " + cost
	}
	switch {
	case s.terminal != nil:
		s.to.setStatus(s.fit(line))
	case sample.Elapsed-s.lastPlain >= plainEvery:
		s.lastPlain = sample.Elapsed
		fmt.Fprintln(s.to, line)
	}
}

// fit cuts a line so that it does not wrap: what has wrapped cannot be erased.
func (s *status) fit(line string) string {
	if width, _, err := term.GetSize(int(s.terminal.Fd())); err == nil && width > 0 && len(line) >= width {
		return line[:width-1]
	}
	return line
}

func (s *status) line(sample growth.Sample, latest *growth.Snapshot, pace float64, losses []tracer.Loss) string {
	line := units.Duration(sample.Elapsed.Truncate(time.Second))
	if s.duration != 0 {
		line += " of " + units.Duration(s.duration)
	}
	line += "  RSS " + units.Bytes(float64(sample.RSS))
	if latest != nil {
		line += fmt.Sprintf("  traced %s in %s samples", units.Bytes(float64(latest.Total())), units.Count(float64(latest.LiveObjects)))
	}
	line += fmt.Sprintf("  %s events/s", units.Count(pace))
	dropped, _ := drops(losses)
	return line + fmt.Sprintf("  drops %s", units.Count(float64(dropped)))
}

// clear implements display.
func (s *status) clear() {
	if s.terminal != nil {
		s.to.setStatus("")
	}
	if lines, ok := s.to.w.(*backlog); ok {
		lines.flush() // what is printed next may go to the same place
	}
}

// drops are all losses, and the reason of most of them.
func drops(losses []tracer.Loss) (sum uint64, reason string) {
	var most uint64
	for _, l := range losses {
		sum += l.Count
		if l.Count > most {
			most, reason = l.Count, l.Reason
		}
	}
	return sum, reason
}
