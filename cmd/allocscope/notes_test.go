package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestNotes traces processes about which there is something to say at the start, and looks for it on
// standard error and in the summary.
func TestNotes(t *testing.T) {
	t.Run("mallocs", testNotesMallocs)
	t.Run("a hidden limit", testNotesHiddenLimit)
	t.Run("tracefs is not mounted yet", testNotesTracefs)
}

// The first trace after a boot, or in a container, leaves the mounts as they are.
func testNotesTracefs(t *testing.T) {
	const unmounted = `umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug 2>&-
		before=$(cat /proc/self/mountinfo); "$0" "$@"; status=$?
		[ "$before" = "$(cat /proc/self/mountinfo)" ] || exit 99; exit $status`
	target, dir := startSteps(t), newFolder(t)
	begin(t, inside(allocscope(t, traceArguments(target.PID(), dir, "--duration", "1s")...),
		"unshare", "--mount", "sh", "-c", unmounted)).mustEnd(0)
	if s := readSummary(t, dir); states(s)["mapping"] != summary.SourceAttached {
		t.Errorf("source mapping: %s", reasonOf(t, s, "mapping"))
	}

	d := begin(t, inside(allocscope(t, "doctor"), "unshare", "--mount", "sh", "-c", unmounted))
	d.mustPrint("ok    tracefs                not mounted: " +
		"allocscope trace opens one that nobody else sees\n")
}

func textOf(t *testing.T, s summary.Summary, code string) string {
	t.Helper()
	i := slices.IndexFunc(s.Notes, func(n summary.Note) bool { return n.Code == code })
	if i < 0 {
		return ""
	}
	return words.Note(s.Notes[i])
}

func testNotesMallocs(t *testing.T) {
	for library, want := range map[string][]string{
		"":                 nil,
		"libjemalloc.so.2": {"is jemalloc (libjemalloc.so.2)", "free memory inside it is not measured"},
	} {
		t.Run("preloaded "+library, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(tracertest.Build(t, "steps.c"))
			command.Env = append(os.Environ(), "LD_PRELOAD="+library)
			target := ready(tracertest.StartCommand(t, command))
			c, dir := tracing(t, target, "--overhead", "3%")
			c.interrupt()

			s := readSummary(t, dir)
			mustSay(t, "the notes", textOf(t, s, summary.NoteProcess), "Tracing PID "+itoa(target.PID()))
			mustSay(t, "the notes", textOf(t, s, summary.NoteSampling), "Ctrl-C stops and writes the result")
			got := textOf(t, s, summary.NoteAllocator)
			if len(want) == 0 && got != "" {
				t.Errorf("of glibc's malloc it says %q", got)
			}
			mustSay(t, "the note", got, want...)
			mustSay(t, "stderr", c.stderr.String(), want...)

			d := call(t, "doctor", "--pid", itoa(target.PID()))
			d.mustPrint("Ready: sudo allocscope trace " + itoa(target.PID()) + " --duration 5m\n")
			if len(want) > 0 {
				mustSay(t, "doctor's output", d.stdout.String(), "warn  malloc", want[1])
			}
		})
	}
}

// Neither allocscope nor the process has a mount of cgroups.
func testNotesHiddenLimit(t *testing.T) {
	const unmounted = `umount -l -R /sys/fs/cgroup && exec "$0" "$@"`
	target := ready(tracertest.StartCommand(t, exec.Command("unshare", "--mount", "sh", "-c", unmounted,
		tracertest.Build(t, "steps.c"))))
	tracertest.LimitMemory(t, target.PID(), 1<<30)
	t.Cleanup(func() { _ = target.Process.Kill() }) // before its cgroup is removed

	dir := newFolder(t)
	c := begin(t, inside(allocscope(t, traceArguments(target.PID(), dir, "--duration", "1s")...),
		"unshare", "--mount", "sh", "-c", unmounted))
	c.mustEnd(0)
	s := readSummary(t, dir)
	mustSay(t, "stderr", c.stderr.String(), "cannot be seen from here", "--limit SIZE")
	mustSay(t, "the note", textOf(t, s, summary.NoteLimitHidden), "cannot be seen from here")
	if s.Limit == nil || s.Limit.Of != "machine" {
		t.Errorf("the limit is %+v", s.Limit)
	}

	d := begin(t, inside(allocscope(t, "doctor", "--pid", itoa(target.PID())), "unshare", "--mount",
		"sh", "-c", unmounted))
	d.mustPrint("warn  memory limit", "--limit SIZE")

	// The host's mounts show the limit.
	again := newFolder(t)
	call(t, traceArguments(target.PID(), again, "--duration", "1s")...).mustEnd(0)
	s = readSummary(t, again)
	if textOf(t, s, summary.NoteLimitHidden) != "" || s.Limit == nil || s.Limit.Bytes != 1<<30 {
		t.Errorf("notes %+v, limit %+v", s.Notes, s.Limit)
	}
}
