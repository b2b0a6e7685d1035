package summary

// A Target identifies a process on this machine, and the clock of its trace.
type Target struct {
	PID int `json:"pid"`
	// StartTicks is when the process started, since the machine's boot, in ticks of 10 ms:
	// starttime of proc_pid_stat(5). With PID and BootID no other process has it.
	StartTicks int64 `json:"start_ticks"`
	// BootID is the ID in /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id"`
	// MonotonicS is Started by CLOCK_MONOTONIC, the time since the boot.
	MonotonicS float64 `json:"monotonic_s"`
}

// Continued is an earlier trace of the same process that a trace continues. Times count from the
// start of the earlier one.
type Continued struct {
	// Folder of the earlier trace, as the user named it.
	Folder string `json:"folder"`
	// BeganS is when the later trace began, and GapS how long nothing was sampled before it. Data
	// since tracing started, such as stacks and their baseline, count from BeganS.
	BeganS float64 `json:"began_s"`
	GapS   float64 `json:"gap_s"`
}

// A Gap is a time in which nothing was sampled.
type Gap struct {
	FromS float64 `json:"from_s"`
	ToS   float64 `json:"to_s"`
}

// BeganS is when the trace itself began, after those that it continues: 0 where there are none.
func (s *Summary) BeganS() float64 {
	if s.ContinuedFrom == nil {
		return 0
	}
	return s.ContinuedFrom.BeganS
}
