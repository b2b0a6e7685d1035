package words

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestLoss(t *testing.T) {
	for want, loss := range map[string]growth.Loss{
		"frees not seen: the address was allocated again": {Kind: growth.LossMissedFree, Count: 2},
		"truncated stacks: too many frames": {
			Kind: growth.LossTruncatedStacks, Cause: growth.TruncatedLimit,
		},
		"frees not seen: the address was allocated again, of PID 7": {
			Kind: growth.LossMissedFree, Count: 2, PID: 7,
		},
		"a kind of a later version": {Kind: "a kind of a later version"},
	} {
		mustBe(t, Loss(loss), want)
	}
	for kind, text := range lossTexts {
		if !strings.Contains(text, " ") {
			t.Errorf("%s: %q", kind, text)
		}
	}
}

func TestSourceGap(t *testing.T) {
	for gap, want := range map[growth.SourceGap]string{
		"": "",
		growth.Gap32BitCalls: "system calls of a 32-bit program are not traced: " +
			"its mappings come from /proc, without stacks",
		growth.GapBlocks: "blocks of torch's allocator are not followed: that takes too much; " +
			"their totals are read now and then",
		growth.GapBlockBursts: "blocks of torch's allocator are traced in bursts, " +
			"as all would take too much: the bytes of each stack are an estimate",
	} {
		mustBe(t, SourceGap(gap), want)
	}
}

func TestSourceReason(t *testing.T) {
	for want, s := range map[string]summary.Source{
		"": {},
		"no library libx is mapped": {
			Name: "step", SourceFailure: growth.SourceFailure{Reason: growth.SourceNotMapped, File: "libx"},
		},
		"CUDA's driver (libcuda.so.1) is not mapped": {
			Name:          "cuda",
			SourceFailure: growth.SourceFailure{Reason: growth.SourceNotMapped, File: "libcuda.so.1"},
		},
		"no library that exports c10::alloc_cpu is mapped": {
			Name: "tensor", SourceFailure: growth.SourceFailure{Reason: growth.SourceNotMapped},
		},
		"read /bin/x: a 32-bit program": {
			SourceFailure: growth.SourceFailure{Reason: growth.Source32Bit, File: "/bin/x"},
		},
		goAllocator: {SourceFailure: growth.SourceFailure{Reason: growth.SourceGo}},
		"plugin.so has jemalloc within, and no symbols of it: its objects are not seen " +
			"(keep the symbols: no strip)": {
			Gap:           growth.GapAllocator,
			SourceFailure: growth.SourceFailure{File: "/lib/plugin.so", Detail: "jemalloc"},
		},
		"malloc is probed instead: refused": {
			SourceFailure: growth.SourceFailure{Reason: growth.SourceProducer, Detail: "refused"},
		},
		"refused": {SourceFailure: growth.SourceFailure{Reason: growth.SourceOther, Detail: "refused"}},
		SourceGap(growth.GapBlocks): {
			Gap:           growth.GapBlocks,
			SourceFailure: growth.SourceFailure{Reason: growth.SourceOther, Detail: "refused"},
		},
	} {
		mustBe(t, SourceReason(s), want)
	}
}

func TestOverheadChange(t *testing.T) {
	for want, change := range map[string]growth.OverheadChange{
		"every call is probed":                 {Reason: growth.OverheadStarted},
		"1 step timed: every call is probed":   {Reason: growth.OverheadStarted, Steps: 1},
		"30 steps timed: every call is probed": {Reason: growth.OverheadStarted, Steps: 30},
		"naming new stacks takes allocscope too much CPU time: one sample in 1.00 MiB": {
			Reason: growth.OverheadNewStacks, Interval: 1 << 20,
		},
		"walking stacks takes little: one sample in 512 KiB": {
			Reason: growth.OverheadFewWalks, Interval: 512 << 10,
		},
		"heap probes would take 1.2% of a thread's time (12 calls/s): " +
			"every call is probed again": {
			Reason: growth.OverheadCalm, Source: "heap", Share: 0.0123, Calls: 12,
		},
		"tensor probes would take 41% of a thread's time (450.1 k calls/s): " +
			"sampled in bursts of 0.5 s every 28.4 s": {
			Reason: growth.OverheadExpensive, Source: "tensor", Share: 0.414, Calls: 450_123,
			Length: 0.5, Spacing: 28.4,
		},
		"heap probes would take more than 1000% of a thread's time (1.2 M calls/s): " +
			"closed, and checked again for 0.1 s each minute or later": {
			Reason: growth.OverheadNoBurst, Source: "heap", Share: 999, Calls: 1.25e6,
			Length: 0.1, Spacing: 60,
		},
		"walking stacks takes 10% of a thread's time: one sample in 4.00 MiB": {
			Reason: growth.OverheadWalks, Share: 0.0996, Interval: 4 << 20,
		},
		"tensor probes take less than half of the budget: open all the time": {
			Reason: growth.OverheadFewTensors,
		},
		"tensor probes take 3.0% of a thread's time (2840 calls/s): " +
			"open in the bursts of heap alone": {
			Reason: growth.OverheadManyTensors, Share: 0.03, Calls: 2840,
		},
		"blocks on GPUs take 3.0% of a thread's time: one sample in 2.00 MiB": {
			Reason: growth.OverheadBlockWalks, Share: 0.03, Interval: 2 << 20,
		},
		"blocks on GPUs take 3.0% of a thread's time (20.0 k calls/s): " +
			"their totals alone are read from now on": {
			Reason: growth.OverheadManyBlocks, Share: 0.03, Calls: 20_000,
		},
		"blocks on GPUs take 9.7% of a thread's time (108.0 k calls/s): " +
			"traced for 1 s of each 4.3 s": {
			Reason: growth.OverheadBlockBursts, Share: 0.097, Calls: 108_000, Length: 1, Spacing: 4.3,
		},
		"blocks on GPUs take little: all are traced again": {Reason: growth.OverheadFewBlocks},
		"steps are 5.0% slower by the probes, more than 3.0%: half the budget for these": {
			Reason: growth.OverheadSlowSteps, Slowdown: 0.05, Limit: 0.03,
		},
		"steps have not been too slow for ten minutes: twice the budget for probes": {
			Reason: growth.OverheadFastSteps,
		},
		"heap probes disabled: refused": {
			Reason: growth.OverheadFailed, Error: "refused",
		},
	} {
		mustBe(t, OverheadChange(change), want)
	}
}

func TestTreeChange(t *testing.T) {
	for want, change := range map[string]growth.TreeChange{
		"Tracing PID 7 (python3).":  {Event: growth.TreeTraced, PID: 7, Command: "python3"},
		"PID 7 is not traced":       {Event: growth.TreeNotTraced, PID: 7},
		"children are not followed": {Event: growth.TreeNotFollowed},
		"PID 7 (python3) exited":    {Event: growth.TreeExited, PID: 7, Command: "python3"},
		"PID 7 started a new program (python3); earlier data is dropped": {
			Event: growth.TreeExecuted, PID: 7, Command: "python3",
		},
		"The process has exited, and nothing under it could be traced.": {
			Event: growth.TreeSelected, Selection: growth.Selection{Reason: growth.SelectionNone},
		},
	} {
		mustBe(t, TreeChange(change), want)
	}
}

func TestSelection(t *testing.T) {
	of := func(reason growth.SelectionReason, change func(*growth.Selection)) growth.Selection {
		s := growth.Selection{
			Reason: reason, Root: 10, Command: "sh train.sh", RootRole: growth.RoleLauncher,
			Processes: 1, PID: 12, Parent: 10, Traced: "python3 train.py",
			Role: growth.RoleTrainer, Rank: growth.Unknown, Private: 51 * mib,
		}
		if change != nil {
			change(&s)
		}
		return s
	}

	for want, s := range map[string]growth.Selection{
		"": {},
		"PID 10 is a launcher (sh train.sh). Tracing its child 12 (python3 train.py, 51.0 MiB).": of(
			growth.SelectionTraced, nil),
		"PID 10 is a launcher (sh train.sh). Tracing its descendant 12 " +
			"(compile worker: python3 train.py, 400 MiB).": of(
			growth.SelectionTraced, func(s *growth.Selection) {
				s.Role, s.Parent, s.Private = growth.RoleCompileWorker, 11, 400*mib
			}),
		"PID 10 (sh train.sh) holds less than a process under it that grows. " +
			"Tracing its child 12 (python3 train.py, 51.0 MiB).": of(
			growth.SelectionTraced, func(s *growth.Selection) { s.RootRole = growth.RoleTrainer }),
		"Also tracing its child 12 (rank 1: python3 train.py, 51.0 MiB).": of(
			growth.SelectionAdded, func(s *growth.Selection) { s.Role, s.Rank = growth.RoleRank, 1 }),
		"Tracing PID 12 (python3 train.py, 51.0 MiB).": of(
			growth.SelectionTraced, func(s *growth.Selection) { s.Root = 0 }),
		"PID 10 is a launcher (sh train.sh). Tracing 16 ranks, which hold 6.20 GiB together " +
			"(4 more are left out).": of(growth.SelectionTraced, func(s *growth.Selection) {
			s.Role, s.Processes, s.LeftOut, s.Private = growth.RoleRank, 16, 4, 6349*mib
		}),
		"Also tracing 2 DataLoader workers, which hold 51.0 MiB together.": of(
			growth.SelectionAdded, func(s *growth.Selection) {
				s.Role, s.Processes = growth.RoleLoaderWorker, 2
			}),
		"PID 10 is a launcher (sh train.sh). Several processes under it could be the trainer: " +
			"checking which of them grows.": of(growth.SelectionTrainers, nil),
		"PID 10 is sh train.sh. A process under it holds more: checking which of them grows.": of(
			growth.SelectionLarger, func(s *growth.Selection) { s.RootRole = growth.RoleTrainer }),
		"PID 10 is a launcher (sh train.sh): waiting for the program that it starts.": of(
			growth.SelectionWaiting, nil),
		"PID 10 is a launcher (bash " + strings.Repeat("é", 54) +
			"…): waiting for the program that it starts.": of(
			growth.SelectionWaiting, func(s *growth.Selection) {
				s.Command = "bash " + strings.Repeat("é", 1000)
			}),
	} {
		mustBe(t, Selection(s), want)
	}
}
