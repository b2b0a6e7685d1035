package words

import (
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

// TestLanguageText: whichever language it is, the remedy is whole in one line of HOW SURE.
func TestLanguageText(t *testing.T) {
	const pid = 4194304 // the kernel's largest
	for runtime := range languages {
		for _, isListed := range []bool{false, true} {
			l := summary.Limitation{
				Code: summary.LimitedRuntime, Runtime: runtime, IsListed: isListed,
			}
			text := "limited: " + limitationText(l, pid)
			if len(text) > ResultWidth-labelWidth {
				t.Errorf("%d columns: %s", len(text), text)
			}
		}
	}

	java := summary.Limitation{Code: summary.LimitedRuntime, Runtime: growth.RuntimeJava}
	want := "no names of Java: -XX:+PreserveFramePointer, then jcmd 7 Compiler.perfmap"
	mustBe(t, limitationText(java, 7), want)
	java.IsListed = true
	want = "more names of Java: jcmd 7 Compiler.perfmap again, once compiled"
	mustBe(t, limitationText(java, 7), want)
}

// TestSymbolsText: the remedy for a file without symbols is whole in one line of HOW SURE.
func TestSymbolsText(t *testing.T) {
	const library = "/usr/lib/x86_64-linux-gnu/libxml2.so.2.9.14"
	for want, l := range map[string]summary.Limitation{
		"no symbols of libxml2.so.2.9.14: the package libxml2-dbgsym has them": {
			File: library, Manager: growth.ManagerApt, Package: "libxml2-dbgsym",
		},
		"no symbols of libxml2.so.2.9.14: the package libxml2-dbg has them": {
			File: library, Manager: growth.ManagerApk, Package: "libxml2-dbg",
		},
		"no symbols of libxml2.so.2.9.14: dnf debuginfo-install PACKAGE (rpm -qf names it)": {
			File: library, Manager: growth.ManagerDnf,
		},
		"no symbols of libxml2.so.2.9.14: zypper in PACKAGE-debuginfo (rpm -qf names it)": {
			File: library, Manager: growth.ManagerZypper,
		},
		"no symbols of libxml2.so.2.9.14: its debug package, or a build with -g, has them": {
			File: library,
		},
		"no symbols of served: a build with -g that is not stripped has them": {File: "/app/served"},
	} {
		l.Code = summary.LimitedSymbols
		got := limitationText(l, 7)
		if line := "limited: " + got; got != want || len(line) > ResultWidth-labelWidth {
			t.Errorf("%d columns: %q, want %q", len(line), got, want)
		}
	}
}

// TestAllocatorNote: the remedy is whole in one line of NOTE.
func TestAllocatorNote(t *testing.T) {
	for _, name := range []string{"tcmalloc", "mimalloc", "jemalloc"} {
		note := allocatorNote(summary.Allocator{Name: name, Limit: growth.HeapUnchecked})
		if len(note) > ResultWidth-labelWidth {
			t.Errorf("%d columns: %s", len(note), note)
		}
	}
	want := "malloc is libx.so: bursts leave free memory and fragmentation open. " +
		"Fix: --overhead off (a slower job)"
	unmeasured := summary.Allocator{File: "libx.so", Limit: growth.HeapFreeUnmeasured}
	mustBe(t, allocatorNote(unmeasured), want)
}
