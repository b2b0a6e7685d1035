package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestOutlier traces six ranks of testdata/job.py, of which one keeps more a step: the oracle is
// the memory that each is ordered to keep.
func TestOutlier(t *testing.T) {
	v := undisturbed(t, func() verdictOn {
		return judgeUntilEnd(t, fastTrace(t, startRanks(t, 256, 2, 1536), jobSpeed, outlierTrace))
	}, func(v verdictOn) bool { return v.Outlier != nil })
	o := mustStandOut(t, v, 2, 1536)
	if o.Site != conclude.SiteSame || o.Ratio == nil || *o.Ratio < 4.5 || *o.Ratio > 8 {
		t.Errorf("%+v, want it to grow 6x as fast by the same call site", o)
	}
	mustSay(t, "the result", v.stdout, "rank 2 grows ", "x as fast as the other 5, by the same call site")
}

const (
	ranksOfJob   = 6
	outlierTrace = 20 * minute
)

// startRanks starts the ranks of a job, each of which keeps so many KiB a step, and returns the PID of
// their launcher. One of them keeps more.
func startRanks(t *testing.T, leak, more, leakMore int) int {
	t.Helper()
	var script strings.Builder
	script.WriteString("exec 3<&0; unset PYTHONUNBUFFERED; " + // they share a pipe: a line is one write
		"export TORCHELASTIC_RUN_ID=test WORLD_SIZE=6; ")
	for rank := range ranksOfJob {
		own := leak
		if rank == more {
			own = leakMore
		}
		fmt.Fprintf(&script, "RANK=%d LOCAL_RANK=%d /usr/bin/python3 %s fill=20 %s leak=%d <&3 & ",
			rank, rank, tracertest.Source("job.py"), steps, own)
	}
	launcher := tracertest.Start(t, "/bin/sh", "-c", script.String()+"wait")
	t.Cleanup(launcher.Hangup)
	for range ranksOfJob {
		ready(launcher)
	}
	return launcher.PID()
}

// mustStandOut checks which rank stands out, and its rate by the memory that it keeps five times a
// second.
func mustStandOut(t *testing.T, v verdictOn, rank, leak int) summary.Outlier {
	t.Helper()
	if v.Outlier == nil {
		t.Fatalf("no rank stands out; want %d of %+v", rank, v.Processes)
	}
	o := *v.Outlier
	want := float64(leak<<10) * 5 * 60
	if o.Rank != rank || o.Ranks != ranksOfJob || !(o.Chance >= 0 && o.Chance <= 0.05) ||
		float64(o.RateBytesPerMin) < 0.8*want || float64(o.RateBytesPerMin) > 1.2*want {
		t.Errorf("%+v, want rank %d of %d with %.0f bytes/min", o, rank, ranksOfJob, want)
	}

	p := inTree(t, v.Summary, o.PID)
	id := p.Identity
	if p.Role != growth.RoleRank || p.RateBytesPerMin == nil || p.RateLow == nil || id == nil {
		t.Fatalf("%+v", p)
	}
	if id.Job != "test" || id.RunID != "test" || id.Node == "" || *id.Rank != rank ||
		*id.LocalRank != rank || *id.WorldSize != ranksOfJob {
		t.Errorf("identity %+v", *id)
	}
	return o
}
