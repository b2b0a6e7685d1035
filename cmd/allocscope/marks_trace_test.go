package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// about is how far a trace's start and its first sample may be apart.
const about = time.Second

// mustLieBetween wants that a mark of a trace was set between two moments.
func mustLieBetween(t *testing.T, s summary.Summary, m summary.Mark, from, to time.Time) {
	t.Helper()
	at := s.Started.Add(time.Duration(m.AtS * float64(time.Second)))
	if at.Before(from.Add(-about)) || at.After(to.Add(about)) {
		t.Errorf("mark %q at %s, want it between %s and %s", m.Text, at, from, to)
	}
}

func TestAMarkThatIsSentToARunningTraceIsInItsSummary(t *testing.T) {
	target := startSteps(t)
	c, folder := tracing(t, target, "--snapshot-every", "500ms")
	var sent []time.Time // before and after each mark
	for _, text := range []string{"epoch 3", "two words\x1b[31m"} {
		c.awaitSnapshots(folder, 4)
		sent = append(sent, time.Now())
		call(t, "mark", "--pid", itoa(target.PID()), text).mustEnd(0)
		sent = append(sent, time.Now())
	}
	c.interrupt()
	s := readSummary(t, folder)
	if len(s.Marks) != 2 || s.Marks[0].Text != "epoch 3" || s.Marks[1].Text != "two words?[31m" {
		t.Fatalf("marks %+v, want those that were sent, printable", s.Marks)
	}
	for i, m := range s.Marks {
		mustLieBetween(t, s, m, sent[2*i], sent[2*i+1])
	}
	call(t, "mark", "--pid", itoa(target.PID()), "late").mustEnd(1)
}

// epochsIn counts the epochs that a job has printed to a file.
func epochsIn(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "allocscope: epoch")
}

func TestMarksAreTakenFromWhatAProgramPrintsToAFile(t *testing.T) {
	log := filepath.Join(t.TempDir(), "train.log")
	job := tracertest.Start(t, "/bin/sh", "-c", fmt.Sprintf("exec /usr/bin/python3 %s epoch=0.2 >%s", tracertest.Source("job.py"), log))
	t.Cleanup(job.Hangup)
	eventually(t, "the job has printed epochs", func() bool { return exists(log) && epochsIn(t, log) >= 2 })
	c, folder := tracing(t, job, "--interval", "64KiB", "--marks", log)
	began := epochsIn(t, log)
	c.await("more epochs", func() bool { return epochsIn(t, log) >= began+10 })
	c.interrupt()
	printed := epochsIn(t, log)
	s := readSummary(t, folder)
	if n := len(s.Marks); n < 8 || n > printed-2 {
		t.Fatalf("%d marks of %d epochs, want those since the start of the trace", n, printed)
	}
	var first int
	if _, err := fmt.Sscanf(s.Marks[0].Text, "epoch %d", &first); err != nil || first < 3 {
		t.Errorf("the first mark is %q, want none from before the trace", s.Marks[0].Text)
	}
	for i, m := range s.Marks {
		if want := fmt.Sprintf("epoch %d", first+i); m.Text != want || m.AtS < 0 || m.AtS > s.DurationS || i > 0 && m.AtS < s.Marks[i-1].AtS {
			t.Errorf("mark %d: %+v, want %s in the order of time", i, m, want)
		}
	}
}

func TestMarksAreTakenFromWhatIsPipedIn(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	cmd := allocscope(t, traceArguments(target.PID(), dir, "--marks", "-", "--snapshot-every", "200ms")...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	cmd.Stdin = reader
	defer reader.Close()
	c := begin(t, cmd)
	c.awaitFile(dir, "snapshots/000.pb.gz")
	from := time.Now()
	if _, err := io.WriteString(writer, "loss=0.3\nallocscope: epoch 1\nstep 7\nINFO allocscope: validation done\nmy-allocscope: no mark\n"); err != nil {
		t.Fatal(err)
	}
	c.await("the pipe is read", func() bool {
		waiting, err := unix.IoctlGetInt(int(reader.Fd()), unix.TIOCINQ)
		return err == nil && waiting == 0
	})
	to := time.Now()
	c.awaitSnapshots(dir, 2)
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	if len(s.Marks) != 2 || s.Marks[0].Text != "epoch 1" || s.Marks[1].Text != "validation done" {
		t.Fatalf("marks %+v, want the two", s.Marks)
	}
	for _, m := range s.Marks {
		mustLieBetween(t, s, m, from, to)
	}
}

// A job grows steadily from its start. The length of the trace alone does not tell a leak from a warm-up; that the first
// epoch has ended long ago does, and that it has ended makes one suspected.
func TestTheMarkOfTheFirstEpochTellsALeakFromAWarmUp(t *testing.T) {
	const minutes = 22
	for name, c := range map[string]struct {
		epoch time.Duration // of the trace; 0: none is marked
		want  growth.Class
	}{
		"no epoch":       {0, growth.ClassGrowing},
		"one long ago":   {2 * minute, growth.ClassLeak},
		"one in between": {15 * minute, growth.ClassSuspected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := startFullJob(t, 100, "leak=256")
			flags := fastTrace(t, job.PID(), time.Minute.Seconds()/minute.Seconds(), minutes*minute)
			flags.marks = filepath.Join(t.TempDir(), "log")
			appendTo(t, flags.marks, "allocscope: epoch from before\n")
			var printing sync.WaitGroup
			defer printing.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel() // however the trace ends
			if c.epoch != 0 {
				printing.Go(func() { markEpoch(ctx, t, flags, c.epoch) })
			}
			v, err := judgeUntil(t.Context(), t, flags)
			if err != nil {
				t.Fatal(err)
			}
			v.mustBe(t, c.want)
		})
	}
}

// markEpoch prints the mark of an epoch so long after the beginning of a trace.
func markEpoch(ctx context.Context, t *testing.T, flags traceFlags, after time.Duration) {
	for !exists(filepath.Join(flags.output, folder.SnapshotFile(0))) && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(after)
	file, err := os.OpenFile(flags.marks, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = io.WriteString(file, "allocscope: epoch 1\n")
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Error(err)
	}
}
