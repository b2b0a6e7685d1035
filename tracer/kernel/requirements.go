package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Release returns the release of the running kernel. supported reports whether allocscope can run
// on it: Linux 5.15 or newer.
func Release() (release string, supported bool, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", false, fmt.Errorf("read the kernel's release: %w", err)
	}
	release = unix.ByteSliceToString(name.Release[:])

	var major, minor int
	_, err = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return release, err == nil && (major > 5 || major == 5 && minor >= 15), nil
}

// A Privilege is a capability that allocscope uses (capabilities(7)).
type Privilege struct {
	Name string
	// Without is the part of a trace that is missing without it, for people; empty: nothing can be
	// traced.
	Without string

	bit           int
	adminSuffices bool // CAP_SYS_ADMIN has the same effect
}

var privileges = []Privilege{
	{"CAP_BPF", "", unix.CAP_BPF, true},
	{"CAP_PERFMON", "", unix.CAP_PERFMON, true},
	{"CAP_SYS_PTRACE", "processes of other users cannot be traced", unix.CAP_SYS_PTRACE, false},
	{
		"CAP_CHECKPOINT_RESTORE", "no allocation sites of heap memory, and no names",
		unix.CAP_CHECKPOINT_RESTORE, true,
	},
	{
		"CAP_DAC_READ_SEARCH", "no source mapping; of other users' processes no allocation sites " +
			"of heap memory, no names, and no RSS breakdown",
		unix.CAP_DAC_READ_SEARCH, false,
	},
}

// Privileges returns the capabilities that allocscope uses.
func Privileges() []Privilege { return slices.Clone(privileges) }

func effectiveCapabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32, nil
}

// MissingPrivileges returns the capabilities that this process lacks.
func MissingPrivileges() (missing []Privilege, err error) {
	effective, err := effectiveCapabilities()
	if err != nil {
		return nil, err
	}

	for _, p := range privileges {
		isAdmin := p.adminSuffices && effective&(1<<unix.CAP_SYS_ADMIN) != 0
		if !isAdmin && effective&(1<<p.bit) == 0 {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// BTFPath is the kernel's type information, which loading takes, and BTFRemedy what to do without.
const (
	BTFPath   = "/sys/kernel/btf/vmlinux"
	BTFRemedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF, as distributions' are; " +
		"in a container or chroot, mount the host's /sys"
)

// initialPIDNamespace is the inode of the initial PID namespace: PROC_PID_INIT_INO in
// https://github.com/torvalds/linux/blob/v6.13/include/linux/proc_ns.h
const initialPIDNamespace = 0xEFFFFFFC

// PIDNamespace returns the numbers that identify this process's PID namespace to the BPF programs.
// Zeros mean the initial one.
func PIDNamespace() (device, inode uint64, err error) {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0, 0, fmt.Errorf("identify PID namespace: %w", err)
	}

	stat := info.Sys().(*syscall.Stat_t)
	if stat.Ino == initialPIDNamespace {
		return 0, 0, nil
	}
	return stat.Dev, stat.Ino, nil
}

// InitialPID returns the PID in the initial namespace of a process that uses a GPU; 0: unknown.
func (k *Kernel) InitialPID(pid int) int {
	if _, inode, err := PIDNamespace(); err == nil && inode == 0 {
		return pid
	}
	var initial uint32
	if err := k.GpuUsers.Lookup(uint32(pid), &initial); err != nil {
		return 0
	}
	return int(initial)
}

// ErrPIDNamespace means that the BPF programs cannot see a process's PID. They see PIDs of this
// process's namespace alone, unless that is the initial one.
var ErrPIDNamespace = errors.New("nested PID namespace (run allocscope on the host)")

// CheckReachable returns ErrPIDNamespace if the BPF programs cannot see the process's PID.
func CheckReachable(pid int) error {
	_, ours, err := PIDNamespace()
	if err != nil || ours == 0 {
		return err
	}

	info, err := os.Stat(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return fmt.Errorf("identify PID namespace of pid %d: %w", pid, err)
	}

	if info.Sys().(*syscall.Stat_t).Ino != ours {
		return fmt.Errorf("trace pid %d: %w", pid, ErrPIDNamespace)
	}
	return nil
}
