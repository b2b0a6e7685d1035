package growth

// An Identity is which process of which job a process is, for labels of metrics and profiles. Its texts
// are printable and short; empty ones are unknown, and numbers are Unknown.
type Identity struct {
	// Job is the ID of the job: the first known ID of Ray, torchrun (unless "none"), Kubeflow and
	// Slurm.
	Job string
	// RunID is TORCHELASTIC_RUN_ID, and SlurmJob SLURM_JOB_ID.
	RunID, SlurmJob string
	// Rank, LocalRank and WorldSize of a rank.
	Rank, LocalRank, WorldSize int
	Role                       Role
	// Node is the name of the host.
	Node string
	// Pod is the UID of the Kubernetes pod, and Container the short ID, by the cgroup's path.
	Pod, Container string
}

// MaxIdentityBytes bounds each text of an identity, without the ellipsis of one that was longer.
const MaxIdentityBytes = 128

// UnknownIdentity returns an identity of which nothing is known.
func UnknownIdentity() Identity {
	return Identity{Rank: Unknown, LocalRank: Unknown, WorldSize: Unknown}
}
