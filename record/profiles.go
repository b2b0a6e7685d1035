package record

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/profile"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

// profiles writes the pprof files of a trace.
type profiles struct {
	session Session
	options *Options
	files   *Files
	history *growth.History
	meter   *meter
	asked   summary.Process // of a trace without a main process
	started time.Time       // when Elapsed was 0

	// verdicts are in sentences, of RSS and of GPU memory; there are none until the end.
	verdicts []string
}

// write writes a profile of holdings between a time and a snapshot.
func (p *profiles) write(
	file string, holdings []growth.Holding, from time.Duration, to *growth.Snapshot,
) {
	executable := p.asked.Executable
	if main := p.history.Main(); main != nil {
		executable = main.Executable
	}
	info := profile.Info{
		Time:       p.started.Add(from),
		Duration:   to.Elapsed - from,
		Interval:   effectiveInterval(to),
		Executable: executable,
		Processes:  commandsOf(p.history),
		Comments:   p.comments(to),
		Components: p.options.Components,
	}
	p.files.Write(file, func(w io.Writer) error { return profile.Write(w, holdings, info) })
}

// commandsOf are the commands of the traced processes, by PID.
func commandsOf(h *growth.History) map[int]string {
	commands := make(map[int]string)
	for _, t := range h.Traced() {
		commands[t.PID] = t.Command
	}
	return commands
}

// comments let a profile be understood without the other files.
func (p *profiles) comments(s *growth.Snapshot) []string {
	comments := []string{
		"allocscope " + p.options.Version,
		fmt.Sprintf("kernel %s %s", kernelRelease(), runtime.GOARCH),
		fmt.Sprintf("sampling interval %d bytes", max(s.Interval, 1)),
	}

	o := withLag(p.meter.overhead(), s.Heap)
	comments = append(comments, words.HeapComments(o, s.Heap.Untrackable)...)
	comments = append(comments, p.verdicts...)
	for _, s := range p.session.Sources() {
		line := SourceName(s) + ": attached"
		switch {
		case s.Off:
			line = SourceName(s) + ": off"
		case !s.Attached:
			line = SourceName(s) + ": not attached"
		}

		if reason := SourceReason(s); reason != "" {
			line += ": " + reason
		}
		if len(s.Producers) > 0 {
			line += " " + words.ByProducers(s.Producers)
		}

		comments = append(comments, line)
	}

	if _, losses, err := p.meter.counters(); err == nil {
		for _, l := range losses {
			comments = append(comments, fmt.Sprintf("lost %d: %s", l.Count, words.Loss(l)))
		}
	}

	return comments
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
