package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

const plainEvery = 10 * time.Second // between lines where there is no terminal

// status tells how the trace goes: one line that is rewritten on a terminal, a line now and then elsewhere.
type status struct {
	to         *screen
	terminal   *os.File      // nil where there is none
	duration   time.Duration // 0: until Ctrl-C
	lastPlain  time.Duration
	lastSample time.Duration
	lastEvents uint64
}

func newStatus(to *screen, duration time.Duration) *status {
	file, ok := to.w.(*os.File)
	s := &status{to: to, duration: duration}
	if ok && term.IsTerminal(int(file.Fd())) {
		s.terminal = file
	}
	return s
}

// show says where the trace stands. latest is nil before the first snapshot.
func (s *status) show(sample growth.Sample, latest *growth.Snapshot, events tracer.Events, losses []tracer.Loss) {
	pace := 0.0
	if passed := (sample.Elapsed - s.lastSample).Seconds(); passed > 0 {
		pace = float64(events.Total()-s.lastEvents) / passed
	}
	s.lastSample, s.lastEvents = sample.Elapsed, events.Total()
	line := s.line(sample, latest, pace, losses)
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
	line := words.Duration(sample.Elapsed.Truncate(time.Second))
	if s.duration != 0 {
		line += " of " + words.Duration(s.duration)
	}
	line += "  RSS " + words.Bytes(float64(sample.RSS))
	if latest != nil {
		line += fmt.Sprintf("  traced %s in %s samples", words.Bytes(float64(latest.Total())), words.Count(float64(latest.LiveObjects)))
	}
	line += fmt.Sprintf("  %s events/s", words.Count(pace))
	var dropped uint64
	for _, l := range losses {
		dropped += l.Count
	}
	return line + fmt.Sprintf("  drops %s", words.Count(float64(dropped)))
}

// clear takes the status line away.
func (s *status) clear() {
	if s.terminal != nil {
		s.to.setStatus("")
	}
}
