package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/tracer/process"
)

// stateSchema is the version of the form of the state.
const stateSchema = "allocscope-agent/1"

// maxStateBytes bounds the file of the state.
const maxStateBytes = 64 << 20

// A savedState is the state that survives a restart.
type savedState struct {
	Schema string `json:"schema"`
	// BootID of the machine: after another boot no process is the same.
	BootID string `json:"boot_id"`
	// TracesAt are the starts of the traces of the last 24 hours.
	TracesAt []time.Time `json:"traces_at"`
	// Running is the trace that runs; absent: none does.
	Running   *savedTrace    `json:"running,omitempty"`
	Processes []savedProcess `json:"processes"`
}

// A savedTrace is a trace that runs.
type savedTrace struct {
	PID        int    `json:"pid"`
	StartTicks int64  `json:"start_ticks"`
	Folder     string `json:"folder"`
	// ChildPID and ChildStartTicks are of the trace's own process.
	ChildPID        int   `json:"child_pid"`
	ChildStartTicks int64 `json:"child_start_ticks"`
}

// A savedProcess is the history and the verdict of a process.
type savedProcess struct {
	PID        int    `json:"pid"`
	StartTicks int64  `json:"start_ticks"`
	Image      string `json:"image"`

	Verdict       verdict.Class    `json:"verdict"`
	Alarmed       bool             `json:"alarmed"`
	Reported      verdict.Class    `json:"reported"`
	Checks        verdict.Progress `json:"checks"`
	NextJudgement float64          `json:"next_judgement_s"`
	NearLimit     int              `json:"near_limit"`
	WantsTrace    bool             `json:"wants_trace"`
	Full          bool             `json:"full"`
	TracedAt      time.Time        `json:"traced_at"`
	// Folder of the last trace; empty: there was none.
	Folder string `json:"folder"`

	BornS  float64 `json:"born_s"`
	BeganS float64 `json:"began_s"`
	Stride int     `json:"stride"`
	// The samples, each as the difference to the one before: the age in milliseconds, RSS and
	// anonymous and shared memory in KiB.
	AgeMS      []int64 `json:"age_ms"`
	RSSKiB     []int64 `json:"rss_kib"`
	PrivateKiB []int64 `json:"private_kib"`
}

const bytesPerKiB = 1 << 10

// saved is the process for the state.
func (w *watchedProcess) saved() savedProcess {
	h := &w.history
	s := savedProcess{
		PID: w.key.pid, StartTicks: w.key.start, Image: w.image.String(),
		Verdict: w.verdict.Class, Alarmed: w.alarmed, Reported: w.reported,
		Checks: w.rechecks.Progress(), NextJudgement: w.nextJudgement,
		NearLimit: w.nearLimit, WantsTrace: w.wantsTrace, Full: w.isFull, TracedAt: w.tracedAt,
		Folder: w.folder,
		BornS:  h.born, BeganS: h.began, Stride: h.thinning.Stride(),
		AgeMS:      make([]int64, len(h.points)),
		RSSKiB:     make([]int64, len(h.points)),
		PrivateKiB: make([]int64, len(h.points)),
	}

	var age, rss, private int64
	for i, p := range h.points {
		nowAge := milliseconds(p.age)
		nowRSS, nowPrivate := p.rss/bytesPerKiB, p.private/bytesPerKiB
		s.AgeMS[i], s.RSSKiB[i], s.PrivateKiB[i] = nowAge-age, nowRSS-rss, nowPrivate-private
		age, rss, private = nowAge, nowRSS, nowPrivate
	}

	return s
}

// check refuses impossible values.
func (s *savedProcess) check() error {
	n := len(s.AgeMS)
	finite := func(x float64) bool { return x >= 0 && x < 1e12 }
	switch {
	case n > maxSamples+1 || len(s.RSSKiB) != n || len(s.PrivateKiB) != n:
		return fmt.Errorf("process %d has %d, %d and %d samples", s.PID, n, len(s.RSSKiB),
			len(s.PrivateKiB))
	case s.PID <= 0 || s.StartTicks < 0 || s.Stride < 1 || s.Stride > 1<<30:
		return fmt.Errorf("process %d is out of range", s.PID)
	case !finite(s.BornS) || !finite(s.BeganS) || !finite(s.NextJudgement) || !finite(s.Checks.Next) ||
		s.Checks.Streak < 0:
		return fmt.Errorf("process %d has a time that is none", s.PID)
	case s.Folder != "" && !traceName.MatchString(s.Folder):
		return fmt.Errorf("process %d has a folder that is none", s.PID)
	}

	var age, rss, private int64
	const most = 1 << 50
	for i := range n {
		if i > 0 && s.AgeMS[i] <= 0 {
			return fmt.Errorf("process %d has samples that are out of order", s.PID)
		}
		age, rss, private = age+s.AgeMS[i], rss+s.RSSKiB[i], private+s.PrivateKiB[i]
		if min(age, rss, private) < 0 || max(age, rss, private) > most {
			return fmt.Errorf("process %d has a sample that is out of range", s.PID)
		}
	}

	return nil
}

// restore continues the history of the process that was saved.
func (w *watchedProcess) restore(s savedProcess) {
	w.history = history{
		thinning: growth.ThinningOf(s.Stride), born: s.BornS, began: s.BeganS,
		points: make([]point, len(s.AgeMS)),
	}

	var age, rss, private int64
	for i := range s.AgeMS {
		age, rss, private = age+s.AgeMS[i], rss+s.RSSKiB[i], private+s.PrivateKiB[i]
		w.history.points[i] = point{float64(age) / 1000, rss * bytesPerKiB, private * bytesPerKiB}
	}

	w.rechecks.Resume(s.Checks)
	w.verdict.Class, w.alarmed, w.reported = s.Verdict, s.Alarmed, s.Reported
	w.nextJudgement = s.NextJudgement
	if s.Verdict != verdict.ClassTooShort {
		w.nextJudgement = 0 // the numbers of the verdict were not saved
	}

	w.nearLimit, w.wantsTrace, w.tracedAt = s.NearLimit, s.WantsTrace, s.TracedAt
	w.folder, w.isFull = s.Folder, s.Full
}

// errNoState means that there is no state, or none of this boot.
var errNoState = errors.New("no state")

// readState reads the state of the agent before.
func (d *directory) readState() (*savedState, error) {
	file, err := d.root.OpenFile(stateFile, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoState
	}

	if err != nil {
		return nil, err
	}

	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}

	raw, err := io.ReadAll(io.LimitReader(file, maxStateBytes+1))
	if err != nil {
		return nil, err
	}

	if len(raw) > maxStateBytes {
		return nil, fmt.Errorf("more than %d bytes", maxStateBytes)
	}

	var s savedState
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}

	return &s, s.check()
}

func (s *savedState) check() error {
	boot, err := process.BootID()
	switch {
	case s.Schema != stateSchema:
		return fmt.Errorf("its form is %q, not %q", growth.Truncate(growth.Printable(s.Schema), 40),
			stateSchema)
	case err != nil:
		return err
	case s.BootID != boot:
		return errNoState
	case len(s.Processes) > MaxWatched || len(s.TracesAt) > maxTracesPerDay:
		return fmt.Errorf("%d processes and %d traces", len(s.Processes), len(s.TracesAt))
	case s.Running != nil && !traceName.MatchString(s.Running.Folder):
		return errors.New("the folder of the trace that ran is none")
	}

	for i := range s.Processes {
		if err := s.Processes[i].check(); err != nil {
			return err
		}
	}

	return nil
}

// moveDamaged moves a damaged state aside, and returns where it is.
func (d *directory) moveDamaged() (path string, err error) {
	return filepath.Join(d.path, damagedFile), d.root.Rename(stateFile, damagedFile)
}

// writeState writes the state whole, or not at all.
func (d *directory) writeState(s *savedState) error {
	return folder.WriteFile(filepath.Join(d.path, stateFile), d.owner, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(s)
	})
}
