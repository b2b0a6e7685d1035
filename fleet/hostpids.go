package fleet

import "github.com/allocscope/allocscope/tracer/kernel"

// HostPIDs reports whether the agent is in the PID namespace of the machine. In another one it sees
// the processes of its own container alone.
func HostPIDs() bool {
	_, inode, err := kernel.PIDNamespace()
	return err != nil || inode == 0
}
