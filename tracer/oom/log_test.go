package oom

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// The kernel kills a program that meets the limit of its cgroup. Its report names both.
func TestLog(t *testing.T) {
	const limit = 32 << 20
	target := tracertest.Start(t, tracertest.Build(t, "steps.c"))
	target.Await("ready")
	cgroup := tracertest.LimitMemory(t, target.PID(), limit)
	log := tracertest.Must(OpenAtEnd())(t)
	defer log.Close()

	target.Say("leak 1000000 200")
	_, _ = target.Process.Wait()
	var kill growth.OOMKill
	tracertest.Eventually(t, "the log has the kill", func() bool {
		kills := tracertest.Must(log.Kills())(t)
		i := slices.IndexFunc(kills, func(k growth.OOMKill) bool { return k.PID == target.PID() })
		if i >= 0 {
			kill = kills[i]
		}
		return i >= 0
	})

	if kill.Command != "steps" || kill.OfMachine || kill.Cgroup != cgroup || kill.Own != cgroup ||
		kill.Limit != limit || kill.Used > limit || kill.Used < limit*9/10 {
		t.Errorf("%+v", kill)
	}
	if kill.Anonymous > limit || kill.Anonymous < limit/2 || kill.Shared != 0 || kill.File <= 0 {
		t.Errorf("%+v", kill)
	}
	if kill.Count != 1 || len(kill.Largest) != 1 || kill.Largest[0].PID != target.PID() ||
		kill.Largest[0].Command != "steps" || kill.Largest[0].RSS < kill.Anonymous {
		t.Errorf("the table is %+v", kill.Largest)
	}
}

// kills parses a file of records.
func kills(t *testing.T, name string) (kills []growth.OOMKill) {
	t.Helper()
	raw := tracertest.Must(os.ReadFile(filepath.Join("testdata", name)))(t)
	var p parser
	for record := range strings.SplitSeq(string(raw), "\n") {
		if kill, ok := p.add(record); ok {
			kills = append(kills, kill)
		}
	}
	return kills
}

// The files are of Linux 6.18, with fewer lines and other names.
func TestParser(t *testing.T) {
	t.Run("cgroup of version 1", func(t *testing.T) {
		mustParse(t, kills(t, "cgroup.kmsg"), growth.OOMKill{
			At: 54780381606 * time.Microsecond, PID: 1487, Command: "steps",
			Anonymous: 65280 << 10, File: 1220 << 10,
			Cgroup: "/allocscope-test-4012322468", Own: "/allocscope-test-4012322468",
			Used: 65428 << 10, Limit: 65536 << 10, Count: 1,
			Largest: []growth.OOMTask{{PID: 1487, Command: "steps", RSS: 16625 << 12}},
		})
	})

	// The kernel has chosen a small process, by its oom_score_adj.
	t.Run("machine", func(t *testing.T) {
		mustParse(t, kills(t, "machine.kmsg"), growth.OOMKill{
			At: 5305745291 * time.Microsecond, PID: 32714, Command: "new", OfMachine: true,
			Anonymous: 19348 << 10, File: 8332 << 10, Shared: 260 << 10,
			Own: "/jobs/a", Used: growth.Unknown, Limit: growth.Unknown, Count: 8,
			Largest: []growth.OOMTask{
				{PID: 10977, Command: "python3", RSS: 5926358 << 12},
				{PID: 18351, Command: "python3", RSS: 28917 << 12},
				{PID: 32607, Command: "python3", RSS: 14458 << 12},
				{PID: 32714, Command: "new", RSS: 6985 << 12},
				{PID: 2028, Command: "exe", RSS: 3985 << 12},
			},
		})
	})

	t.Run("forged", func(t *testing.T) {
		// Programs write with another facility; a command may look like a part of a line.
		const killed = `Memory cgroup out of memory: Killed process 7 (%s) total-vm:1kB, anon-rss:2kB, ` +
			`file-rss:3kB, shmem-rss:4kB, UID:0 pgtables:180kB oom_score_adj:0` + "\n"
		parse := func(records ...string) (kills []growth.OOMKill) {
			var p parser
			for _, r := range records {
				if kill, ok := p.add(r); ok {
					kills = append(kills, kill)
				}
			}
			return kills
		}
		if got := parse(fmt.Sprintf("12,1,5,-;"+killed, "x")); got != nil {
			t.Errorf("of a program: %+v", got)
		}
		if got := parse(fmt.Sprintf("6,1,5,-;x\\x0a"+killed, "x")); got != nil {
			t.Errorf("behind a line break: %+v", got)
		}

		bare := growth.OOMKill{
			At: 5 * time.Microsecond, PID: 7, Anonymous: 2 << 10, File: 3 << 10, Shared: 4 << 10,
			Used: growth.Unknown, Limit: growth.Unknown,
		}
		for command, want := range map[string]string{
			`a\x0a\x1b[2J`: "a??[2J", "x) total-vm:9kB": "x) total-vm:9kB",
			" invoked oom-k": " invoked oom-k", `\x5cx0a\xff`: `\x0a?`,
		} {
			bare.Command = want
			mustParse(t, parse(fmt.Sprintf("3,1,5,-;"+killed, command)), bare)
		}
	})

	// With memory.oom.group the report is about all processes of the cgroup.
	t.Run("group", func(t *testing.T) {
		raw := string(tracertest.Must(os.ReadFile("testdata/cgroup.kmsg"))(t))
		lines := strings.SplitAfter(raw, "\n")
		last := lines[len(lines)-2]
		second := strings.ReplaceAll(last, "process 1487", "process 1488")
		group := "6,9,54780381607,-;Tasks in /a are going to be killed due to memory.oom.group set\n"
		var p parser
		var limits []int64
		for _, r := range append(lines, group, second) {
			if kill, ok := p.add(r); ok {
				limits = append(limits, kill.Limit)
			}
		}
		if !slices.Equal(limits, []int64{64 << 20, 64 << 20}) {
			t.Errorf("limits %v", limits)
		}
	})
}

func mustParse(t *testing.T, got []growth.OOMKill, want growth.OOMKill) {
	t.Helper()
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("parsed %+v\nwant %+v", got, want)
	}
}

func FuzzParser(f *testing.F) {
	for _, name := range []string{"cgroup.kmsg", "machine.kmsg"} {
		raw := tracertest.Must(os.ReadFile(filepath.Join("testdata", name)))(f)
		f.Add(string(raw))
	}
	f.Fuzz(func(t *testing.T, log string) {
		var p parser
		for record := range strings.SplitSeq(log, "\n") {
			kill, ok := p.add(record)
			isWhole := kill.RSS() >= 0 && len(kill.Largest) <= maxLargest &&
				growth.Printable(kill.Command+kill.Cgroup) == kill.Command+kill.Cgroup
			if ok && !isWhole {
				t.Errorf("%q: %+v", record, kill)
			}
		}
	})
}
