package source

// WithRemedy writes a remedy behind an error.
func WithRemedy(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (" + remedy + ")"
}

// Names are the sources there are: the allocator's functions, those of torch for tensors, those of CUDA's driver and of torch's
// allocator for CUDA, the system calls that map memory, page faults, and steps of training.
func Names() []string { return []string{"heap", "tensor", "cuda", "mapping", "fault", "step"} }

// A Source is one kind of event that can be watched.
type Status struct {
	Name string
	// PID of the process that it watches; 0: all.
	PID int
	// Reason why it is not attached, or what it cannot see; empty if there is nothing to say.
	Reason   string
	Attached bool
	// Off: nobody asked for it.
	Off bool
	// err behind Reason; nil if there is none.
	Err error
	// Details for those who ask: what is probed, where and why there.
	Details []string
}
