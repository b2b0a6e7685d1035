package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

func TestOOMKill(t *testing.T) {
	limit, used := int64(2<<30), int64(2<<30)
	own := summary.OOMKill{
		PID: 7, Command: "python3", AnonymousBytes: 1 << 30, FileBytes: 1 << 20, Cgroup: "/pod",
		UsedBytes: &used, LimitBytes: &limit, Own: "/pod/a", Processes: 7,
		Largest: []summary.OOMTask{{PID: 7, Command: "python3", RSSBytes: 1 << 30}, {PID: 8, Command: "sh", RSSBytes: 1 << 20}},
	}
	worker := summary.OOMKill{PID: 9, Command: "pt_data_worker", AnonymousBytes: 3 << 20, OfMachine: true}
	s := &summary.Summary{
		Process: summary.Process{PID: 7}, OOMKills: []summary.OOMKill{worker, own},
	}
	want := []string{
		"killed with 1.00 GiB in RAM, at the limit of cgroup /pod, 2.00 GiB",
		"of 7 processes there, most RSS had python3 (PID 7) 1.00 GiB, sh (PID 8) 1.00 MiB",
		"the kernel killed pt_data_worker (PID 9) with 3.00 MiB in RAM, as the machine was out of memory",
	}
	if got := oomNotes(s); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("notes:\n%s", strings.Join(got, "\n"))
	}

	own.Largest[0], own.Largest[1] = own.Largest[1], own.Largest[0]
	filled := *s
	filled.OOMKills = []summary.OOMKill{own}
	if got := oomNotes(&filled); len(got) != 2 || !strings.HasPrefix(got[0], "of 7 processes there, ") {
		t.Errorf("%q: another process that has filled the memory comes first", got)
	}
	own.Largest[0], own.Largest[1] = own.Largest[1], own.Largest[0]

	s.Ended = summary.EndedOutOfMemory
	s.Sources = []summary.Source{{Name: "heap", State: summary.SourceFailed}}
	if notes := noteLines(s, Place{}); len(notes) < 5 || notes[0] != want[0] {
		t.Errorf("the kill comes before what was not traced:\n%s", strings.Join(notes, "\n"))
	}

	lines := strings.Join(OOMLines(&own), "\n")
	if lines != `limit    cgroup /pod, 2.00 GiB; used 2.00 GiB
killed   python3 (PID 7): RSS 1.00 GiB: anonymous 1.00 GiB, files 1.00 MiB, shared 0 B; in cgroup /pod/a
largest  RSS 1.00 GiB  python3 (PID 7)
         RSS 1.00 MiB  sh (PID 8)
         and 5 smaller processes` {
		t.Errorf("lines:\n%s", lines)
	}
}
