package words

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

const mib = 1 << 20

// mustSay wants words in one line of text.
func mustSay(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) || strings.Contains(text, "\n") || strings.Contains(text, "%!") {
			t.Errorf("%q does not say %q in one line", text, word)
		}
	}
}

// mustBe wants a text or lines, in a case that the last arguments name.
func mustBe[T string | []string](t *testing.T, got, want T, name ...any) {
	t.Helper()
	if has, wants := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); has != wants {
		t.Errorf("%v: %s, want %s", name, has, wants)
	}
}

func TestReason(t *testing.T) {
	for _, reason := range []verdict.Reason{
		verdict.ReasonTooShort, verdict.ReasonPlateauTooYoung, verdict.ReasonTooNoisy,
		verdict.ReasonGrowthEnded,
		verdict.ReasonNoGrowth, verdict.ReasonTolerated, verdict.ReasonNotProven,
		verdict.ReasonSlowsDown, verdict.ReasonStillGrowing, verdict.ReasonAfterWarmup,
		verdict.ReasonNoPlateau, verdict.ReasonStacksAccumulate, verdict.ReasonFragmentation,
		verdict.ReasonPageCache,
	} {
		if text := Reason(summary.Verdict{WhyCode: reason}); !strings.Contains(text, " ") {
			t.Errorf("%s: %q", reason, text)
		}
	}
	mustSay(t, Reason(summary.Verdict{
		WhyCode: verdict.ReasonFewRechecks, Streak: &summary.Streak{Found: 1, Needed: 3},
	}), "in 1 of 3 checks")
	mustSay(t, Reason(summary.Verdict{WhyCode: verdict.ReasonOtherProcess, Other: &summary.OtherGrowth{
		PID: 7, Command: "python3 train.py", GrowthBytes: 1100 * mib, TreeGrowthBytes: 3 * mib,
	}}), "PID 7 (python3 train.py)", "1100 MiB", "tree by 3 MiB", "--pid 7")
}

func TestAdvice(t *testing.T) {
	retained := advice.Advice{
		About: advice.AboutRetained, Bytes: 200 * mib, Growth: 100 * mib, Of: 400 * mib,
		RSSShare: 0.143, Arenas: 12, Threads: 17, IsArenaLimit: true,
	}
	mustSay(t, adviceText(retained), "200 MiB", "12 arenas of 17 threads", "100 MiB of 400", "14%",
		"MALLOC_ARENA_MAX", "malloc_trim", "jemalloc")
	retained.IsArenaLimit, retained.Arenas = false, 1
	if text := adviceText(retained); strings.Contains(text, "MALLOC_ARENA_MAX") {
		t.Errorf("a limit for one arena: %q", text)
	}
	mustSay(t, adviceText(advice.Advice{
		About: advice.AboutCopies, Growth: 64 * mib, Of: 100 * mib, Workers: 1,
	}), "1 forked worker grew by 64 MiB", "100 MiB", "numpy", "spawn", "pytorch#13246")
	mustSay(t, adviceText(advice.Advice{
		About: advice.AboutRecompiles, Growth: 16 * mib, ModulesBefore: 10, ModulesAfter: 18,
	}), "16 MiB", "10 compiled modules became 18", "mark_dynamic", "cache_size_limit")
	mustSay(t, adviceText(advice.Advice{
		About: advice.AboutPinned, Bytes: 74 * mib, Growth: 64 * mib, Of: 400 * mib,
	}), "64 MiB of 400", "74 MiB", "pin_memory")
	mustSay(t, adviceText(advice.Advice{
		About: advice.AboutCache, Growth: 256 * mib, Of: 25 * mib,
	}), "256 MiB", "25 MiB", "working set")
}

func TestDiagnosis(t *testing.T) {
	freed := summary.Diagnosis{
		Cause: diagnosis.Fragmentation, BytesPerMin: 41 * mib, Share: 0.97,
		Confidence: diagnosis.High,
	}
	const want = "fragmentation: 97% of the growth is freed memory that malloc keeps (high confidence)"
	mustBe(t, Diagnosis(freed), want)

	freed.Walked = true
	mustSay(t, Diagnosis(freed), "by walking malloc's heaps", "near the end (high")
	for cause := diagnosis.Undecided + 1; cause < diagnosis.NumCauses; cause++ {
		d := summary.Diagnosis{Cause: cause, Confidence: diagnosis.Low}
		mustSay(t, Diagnosis(d), cause.String()+": ", "low confidence")
	}

	rest := summary.Diagnosis{Cause: diagnosis.Undecided, Bytes: 2 * mib, Share: 0.1}
	mustSay(t, Diagnosis(rest), "10% of the growth is not known")
	rest.Bytes = -rest.Bytes
	mustSay(t, Diagnosis(rest), "shrank, by 10% of the growth")
}

func TestGPUAdvice(t *testing.T) {
	adviceOf := func(j *gpu.Judgement) string {
		g := summary.GPUJudged(j, 1)
		return GPUAdvice(&g)
	}
	curve := func(name gpu.CurveName, rate float64, class verdict.Class) gpu.Curve {
		return gpu.Curve{Name: name, Verdict: verdict.Verdict{Class: class, Rate: rate * mib / 60}}
	}
	j := &gpu.Judgement{
		Curves: []gpu.Curve{
			curve(gpu.CurveUsed, 9, verdict.ClassLeak), curve(gpu.CurveReserved, 5, verdict.ClassLeak),
			curve(gpu.CurveAllocated, 3, verdict.ClassLeak),
		},
		Suspects: []trend.Suspect{{
			Component: "train.py", Frame: growth.Frame{Function: "keep", File: "train.py", Line: 7},
		}},
	}
	for diagnosis, words := range map[gpu.Diagnosis][]string{
		gpu.DiagnosisTensors:       {"by 3.00 MiB/min", "most by train.py: keep (train.py:7)", ".item()"},
		gpu.DiagnosisFragmentation: {"by 5.00 MiB/min", "blocks less, by 3.00", "expandable_segments"},
		gpu.DiagnosisDriver:        {"most by train.py", "NCCL"},
		gpu.DiagnosisContext:       {"by 9.00 MiB/min", "source cuda"},
		gpu.DiagnosisWarmup:        {"slows down"},
		gpu.DiagnosisNone:          {"nothing"},
		gpu.DiagnosisUnknown:       {"too early"},
	} {
		j.Diagnosis = diagnosis
		mustSay(t, adviceOf(j), words...)
	}

	j.Curves = append(j.Curves, curve(gpu.CurveDriver, 2, verdict.ClassLeak))
	j.Diagnosis = gpu.DiagnosisContext
	mustSay(t, adviceOf(j), "printf")
	j.Diagnosis, j.Curves[2].Class = gpu.DiagnosisFragmentation, verdict.ClassPlateau
	mustSay(t, adviceOf(j), "blocks do not")
}
