package summary

import (
	"math"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
)

// An Identity is the job and the rank of a process, by its environment and its cgroup. Unknown keys
// are absent.
type Identity struct {
	// Job is the first that is known of RAY_JOB_ID, RunID, KUBEFLOW_TRAINING_JOB_ID and SlurmJob.
	Job string `json:"job_id,omitempty"`
	// RunID is TORCHELASTIC_RUN_ID; "none": torchrun was given none.
	RunID    string `json:"run_id,omitempty"`
	SlurmJob string `json:"slurm_job_id,omitempty"`
	// Rank among all WorldSize ranks, and LocalRank on its node.
	Rank      *int `json:"rank,omitempty"`
	LocalRank *int `json:"local_rank,omitempty"`
	WorldSize *int `json:"world_size,omitempty"`
	// Node is the name of the host, Pod the UID of the Kubernetes pod, and Container its short ID or
	// its name.
	Node      string `json:"node,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
}

// IdentityOf converts an identity; nil: nothing is known.
func IdentityOf(id growth.Identity) *Identity {
	known := func(n int) *int {
		if n == growth.Unknown {
			return nil
		}
		return &n
	}
	out := Identity{
		Job: id.Job, RunID: id.RunID, SlurmJob: id.SlurmJob,
		Rank: known(id.Rank), LocalRank: known(id.LocalRank), WorldSize: known(id.WorldSize),
		Node: id.Node, Pod: id.Pod, Container: id.Container,
	}
	if out == (Identity{}) {
		return nil
	}
	return &out
}

// Restored returns the identity of a process of this role, as far as a forged one can be one. Of nil,
// nothing is known.
func (i *Identity) Restored(role growth.Role) growth.Identity {
	id := growth.UnknownIdentity()
	id.Role = role
	if i == nil {
		return id
	}

	number := func(n *int) int {
		if n == nil || *n < 0 {
			return growth.Unknown
		}
		return *n
	}
	text := func(s string) string { return growth.Truncate(growth.Printable(s), growth.MaxIdentityBytes) }
	id.Job, id.RunID, id.SlurmJob = text(i.Job), text(i.RunID), text(i.SlurmJob)
	id.Rank, id.LocalRank, id.WorldSize = number(i.Rank), number(i.LocalRank), number(i.WorldSize)
	id.Node, id.Pod, id.Container = text(i.Node), text(i.Pod), text(i.Container)
	return id
}

// An Outlier is the one of several ranks of a trace that grows most unlike the others.
type Outlier struct {
	PID  int `json:"pid"`
	Rank int `json:"rank"`
	// Ranks is the number of ranks that were compared, this one included. Others is the number of
	// those that do not stand out: one less, or fewer where it is the first of several outliers.
	Ranks  int `json:"ranks"`
	Others int `json:"others"`
	// RateBytesPerMin is its rate, and OthersBytesPerMin the median rate of the others. Ratio of the
	// two is absent where the others do not grow to speak of.
	RateBytesPerMin   int64    `json:"rate_bytes_per_min"`
	OthersBytesPerMin int64    `json:"others_bytes_per_min"`
	Ratio             *float64 `json:"ratio,omitempty"`
	// Z is its robust z-score; absent where the others do not differ at all. Chance is the
	// probability that one of as many ranks without an outlier has such a score.
	Z      *float64 `json:"z,omitempty"`
	Chance float64  `json:"chance"`
	// Site is absent where the call site of its growth is not known.
	Site conclude.Site `json:"site,omitempty"`
}

// OutlierOf converts an outlier; nil: no rank stands out.
func OutlierOf(o *conclude.Outlier) *Outlier {
	if o == nil {
		return nil
	}

	const perMin = 60
	out := &Outlier{
		PID: o.Rank.History.PID, Rank: o.Rank.History.Rank, Ranks: o.Ranks, Others: o.Others,
		RateBytesPerMin:   int64(math.Round(o.Rank.Rate * perMin)),
		OthersBytesPerMin: int64(math.Round(o.Middle.Rate * perMin)),
		Chance:            o.Score.Chance, Site: o.Site,
	}
	if ratio, ok := o.Ratio(); ok {
		out.Ratio = &ratio
	}
	if z := o.Score.Z; !math.IsInf(z, 0) {
		out.Z = &z
	}
	return out
}
