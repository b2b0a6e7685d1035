package summary

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestIdentityOf(t *testing.T) {
	if got := IdentityOf(growth.UnknownIdentity()); got != nil {
		t.Errorf("nothing is known: %+v", got)
	}

	rank := growth.Identity{
		Job: "7f", RunID: "7f", SlurmJob: "42", Rank: 0, LocalRank: 0, WorldSize: 8,
		Role: growth.RoleRank, Node: "n1", Pod: "3f5e1a2b-4c6d-7e8f-9a0b-1c2d3e4f5a6b", Container: "0123456789ab",
	}
	some := growth.UnknownIdentity()
	some.Node = "n1"
	for _, c := range []struct {
		id   growth.Identity
		want string
	}{
		{
			rank, `{"job_id":"7f","run_id":"7f","slurm_job_id":"42","rank":0,"local_rank":0,` +
				`"world_size":8,"node":"n1","pod":"3f5e1a2b-4c6d-7e8f-9a0b-1c2d3e4f5a6b",` +
				`"container":"0123456789ab"}`,
		},
		{some, `{"node":"n1"}`},
	} {
		if got, err := json.Marshal(IdentityOf(c.id)); err != nil || string(got) != c.want {
			t.Errorf("%s (%v), want %s", got, err, c.want)
		}
	}
}

func TestRestored(t *testing.T) {
	id := growth.Identity{
		Job: "7f", RunID: "7f", SlurmJob: "42", Rank: 0, LocalRank: growth.Unknown, WorldSize: 8,
		Role: growth.RoleRank, Node: "n1", Pod: "u", Container: "c",
	}
	if got := IdentityOf(id).Restored(growth.RoleRank); got != id {
		t.Errorf("%+v, want %+v", got, id)
	}
	unknown := growth.UnknownIdentity()
	unknown.Role = growth.RoleTrainer
	if got := (*Identity)(nil).Restored(growth.RoleTrainer); got != unknown {
		t.Errorf("of an older version: %+v", got)
	}

	negative := -5
	forged := Identity{Job: strings.Repeat("\x1b", 1000), Node: "\xff", Rank: &negative}
	got := forged.Restored(growth.RoleRank)
	if len(got.Job) > growth.MaxIdentityBytes+len("…") || got.Job[0] != '?' || got.Node != "?" ||
		got.Rank != growth.Unknown {
		t.Errorf("forged: %+v", got)
	}
}

func TestSetVerdict(t *testing.T) {
	var p TreeProcess
	v := verdict.Judge(verdict.Series{}, verdict.Setting{}, verdict.InSeconds())
	v.Class, v.Rate, v.RateLow, v.RateHigh = verdict.ClassLeak, 100, 90, math.NaN()
	if p.SetVerdict(v); p.Verdict != verdict.ClassLeak || *p.RateBytesPerMin != 6000 ||
		*p.RateLow != 5400 || p.RateHigh != nil {
		t.Errorf("%+v", p)
	}
}
