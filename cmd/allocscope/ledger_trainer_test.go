package main

import (
	"math"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
)

// While it trains, its RSS and its free heap change by some MiB within each step: what is true is known from the ends of its steps
// alone, so that it must grow by much more.
func TestWhileARealTrainerTrainsTheLedgerAddsUpToo(t *testing.T) {
	t.Parallel()
	const part, parts = 5, 60
	l := startLoader(t, 0, 0)
	c, dir := tracing(t, l.Target, "--interval", "64KiB", "--warmup", loaderWarmup)
	var moments []moment
	for after := 0; !c.hasEnded(); { // it is never at rest
		moments = append(moments, l.train(part))
		if exists(filepath.Join(dir, boundaryFile)) {
			after++
		}
		if after == parts {
			c.signal(syscall.SIGINT)
		}
	}
	c.mustEnd(0)
	v := ledgerTrace{Summary: readSummary(t, dir), folder: dir, stdout: c.stdout.String(), pid: l.PID()}
	t.Logf("%s\n%s", c.stderr.String(), v.stdout)
	v.from, v.to = between(moments, v.Started.Add(seconds(*v.BaselineS))), between(moments, v.Started.Add(seconds(v.DurationS)))
	grown := residentSpace(t, readProfile(t, dir, folder.GrowthFile), v.pid)
	if sum := v.sum(v.pid); sum.DeltaBytes != grown {
		t.Errorf("rows sum to %d, resident_space of %s to %d", sum.DeltaBytes, folder.GrowthFile, grown)
	}
	mustBePart(t, "what the ledger sums to", float64(grown)/float64(v.grown()), 1)
	v.mustExplain(t)
	v.mustNameTheLeak(t)
}

func TestOfARealTrainerEveryMegabyteIsInTheLedger(t *testing.T) {
	t.Parallel()
	l := startLoader(t, 0, 0)
	traces := traceLoader(t, l, 100, []string{"--interval", "64KiB"}, []string{"--sources", "mapping,fault,step"})
	whole, blind := traces[0], traces[1]
	for _, v := range traces {
		v.mustSumToRSS(t)
		v.mustExplain(t)
		v.mustListTheWorkers(t, childrenOf(t, l.PID()))
		v.mustAdvise(t, growth.AboutCopies, false)
	}
	whole.mustNameTheLeak(t)
	blind.mustNotName(t)
	mustBeAlike(t, whole, blind)
}

// What workers grow by is copies of the pages of labels, in which they count references.
func TestWhatDataLoaderWorkersCopyOfTheirInheritanceIsInTheLedger(t *testing.T) {
	t.Parallel()
	const least = 64 << 20
	l := startLoader(t, 4_000_000, 0)
	v := traceLoader(t, l, 100, []string{"--sources", "mapping,fault,step"})[0]
	grown := v.to.private - v.from.private
	if grown < least {
		t.Fatalf("the workers grew by %d private bytes: the test is wrong", grown)
	}
	var copied int64
	for _, pid := range childrenOf(t, l.PID()) {
		for _, r := range v.of(pid) {
			if r.Kind == growth.KindCOW {
				copied += r.DeltaBytes
			}
		}
	}
	if part := float64(copied) / float64(grown); math.Abs(part-1) > 0.05 {
		t.Errorf("%d bytes are copies, %.1f %% of the %d private ones, want all within 5 points", copied, 100*part, grown)
	}
	v.mustSumToRSS(t)
	v.mustListTheWorkers(t, childrenOf(t, l.PID()))
	v.mustAdvise(t, growth.AboutCopies, true)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
