package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

// growingBy is a process that grows by a cause and, beside it, without one.
func growingBy(cause diagnosis.Cause, share, undecided float64, frames ...string) *summary.Summary {
	s := because(grown(verdict.ClassGrowing, verdict.ReasonStillGrowing), cause, 100*share)
	s.Diagnoses[0].Bytes = 100 << 20
	because(s, diagnosis.Undecided, 100*undecided)
	if len(frames) > 0 {
		all := 0.98
		s.Suspects = []summary.Suspect{{
			Component: fileOf(frames[0]), Function: frames[0], Path: frames, Share: &all,
			BytesPerMin: 1 << 20,
		}}
	}
	return s
}

// TestRuntimeHeap names the heap of a runtime, whichever program has it, and its own tool.
func TestRuntimeHeap(t *testing.T) {
	older := growingBy(diagnosis.OlderMemory, 1, 0)
	older.Breakdown = []summary.BreakdownRow{{
		Process: 7, Kind: growth.KindOlder, DeltaBytes: 100 << 20,
		Site: "G1ParScanThreadState::trim_queue (/usr/lib/jvm/lib/server/libjvm.so)",
	}}
	for name, c := range map[string]struct {
		s         *summary.Summary
		who, next string
	}{
		"node": {
			growingBy(diagnosis.MmapGrowth, 1, 0, "v8::base::OS::Allocate (/usr/bin/node)"),
			"V8's heap (node), 100% of the growth", "heap snapshots",
		},
		"ruby": {
			growingBy(diagnosis.MmapGrowth, 1, 0, "rb_vm_exec (/usr/lib/libruby-3.1.so.3.1.2)"),
			"Ruby's heap (libruby-3.1.so.3.1.2), 100% of the growth", "ObjectSpace.dump_all",
		},
		"Lua within nginx": {
			growingBy(diagnosis.MmapGrowth, 1, 0, "ngx_http_core_content_phase (/usr/sbin/nginx)",
				"lua_pcall (/usr/lib/libluajit-5.1.so.2.1.0)"),
			"Lua's heap (libluajit-5.1.so.2.1.0), 100% of the growth", "cache of its Lua code",
		},
		"Go": {
			growingBy(diagnosis.MmapGrowth, 1, 0, "main.remember (/srv/app)", "runtime.mallocgc (/srv/app)"),
			"Go's heap, by main.remember(), 100% of the growth", "Go's own heap profile",
		},
		"Java": {
			older, "the JVM's heap or metaspace (libjvm.so), touched for the first time",
			"jcmd 7 GC.class_histogram",
		},
		"C": {
			growingBy(diagnosis.MmapGrowth, 1, 0, "load (/srv/app)"),
			"memory that is mapped besides malloc, by load()", "find what maps this memory",
		},
	} {
		if got := whoText(c.s); !strings.HasPrefix(got, c.who) && !strings.Contains(got, c.who) {
			t.Errorf("%s: WHO %q", name, got)
		}
		if got := causeStep(c.s, c.s.Diagnoses[0].Cause); !strings.Contains(got, c.next) {
			t.Errorf("%s: DO NEXT %q", name, got)
		}
	}
}

// TestExplainedBeyond: growth that call sites explain has a cause.
func TestExplainedBeyond(t *testing.T) {
	for _, c := range []struct {
		undecided float64
		want      string
	}{{0.08, ""}, {0.2, "13% has no cause"}} {
		s := growingBy(diagnosis.HeapLeak, 0.91, c.undecided, "load (/srv/app)")
		mustBe(t, otherCauses(s), c.want)
	}
}

// TestKeeperHint: the command that searches is about objects that may be of the growth.
func TestKeeperHint(t *testing.T) {
	for _, c := range []struct {
		name, frame string
		bytes       int64
		hint        bool
	}{
		{"sympy.core.mul.Mul", "forward (/srv/train.py:3)", 1 << 20, false},
		{"sympy.core.mul.Mul", "simplify (/v/site-packages/sympy/core/mul.py:3)", 1 << 20, true},
		{"sympy.core.mul.Mul", "forward (/srv/train.py:3)", 60 << 20, true},
		{"train.Sample", "forward (/srv/train.py:3)", 1 << 20, true},
		{"dict", "forward (/srv/train.py:3)", 1 << 20, true},
	} {
		s := growingBy(diagnosis.HeapLeak, 1, 0, c.frame)
		s.Objects = &summary.Objects{Types: []summary.TypeGrowth{
			{Type: c.name, PerMin: 500, Before: 1, After: 501, Bytes: c.bytes},
		}}
		lines := unkeptLine(s, Place{})
		if len(lines) != 1 || strings.Contains(lines[0], "--keepers") != c.hint {
			t.Errorf("%s by %s: %q", c.name, c.frame, lines)
		}
	}
}

// TestTitleOfService: the title of a process is no path.
func TestTitleOfService(t *testing.T) {
	for argument, want := range map[string]string{
		"nginx: master process /usr/sbin/nginx": "nginx: master process /usr/sbin/nginx",
		"/opt/My App/bin/server":                "server",
	} {
		got := commandText(summary.Process{Arguments: []string{argument}})
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", argument, got)
		}
	}
}

// TestCopiesOfWorkers: the kernel counts the pages that workers copy, so that the cause is known
// where none of them is traced.
func TestCopiesOfWorkers(t *testing.T) {
	rate := 100.0
	s := &summary.Summary{Process: summary.Process{PID: 7}}
	s.Class, s.WhyCode = verdict.ClassGrowing, verdict.ReasonWorkers
	s.Groups = []summary.Group{{
		Role: growth.RoleWorker, Processes: 2, LargestPID: 8, Verdict: verdict.ClassGrowing,
		RateBytesPerMin: &rate,
	}}

	for _, c := range []struct {
		share       float64
		where, next string
	}{
		{0.98, "98% is copies of inherited pages", "start workers by spawn"},
		{0.3, "not known: none of these workers was traced", "trace 8 --no-children"},
	} {
		s.Diagnoses = []summary.Diagnosis{{Cause: diagnosis.CopyOnWrite, Share: c.share}}
		if got := whereLines(s, Place{}); !strings.Contains(got[0], c.where) {
			t.Errorf("WHERE %q", got)
		}
		if got := nextLines(s, Place{}); !strings.Contains(got[0], c.next) {
			t.Errorf("DO NEXT %q", got)
		}
	}
}
