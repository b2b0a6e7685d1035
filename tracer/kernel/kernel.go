package kernel

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// MaxFaults bounds the pages whose newest sampled fault is remembered, about 100 bytes of kernel memory each, used or not.
const MaxFaults = 65_536

// kernel is the loaded BPF object.
type Kernel struct {
	*bpf.Objects
	Mode probe.Mode
	// What the maps inside the maps of unwind tables and of mappings are made like.
	TableSpec, MappingSpec *ebpf.MapSpec
	// whyNotSession is the kernel's refusal of a better mode, for --debug.
	SessionRefusal error
}

// Config is what is set before the BPF object is loaded.
type Config struct {
	// MaxLive is the largest number of live sampled allocations that the kernel follows at a time.
	MaxLive int
	// MaxStacks is the largest number of distinct stacks that the kernel remembers to have reported.
	MaxStacks int
	// MaxFaults is the largest number of pages whose latest sampled fault the kernel keeps.
	MaxFaults int
	// Mode in which functions are probed; probe.Automatic is the best one that the kernel has.
	Mode probe.Mode
}

// Load loads the BPF object in the best mode that the kernel takes, or in the one asked for.
func Load(options Config) (*Kernel, error) {
	release, supported, err := Release()
	if err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("load BPF programs: Linux %s is too old (allocscope needs Linux 5.15 or newer)", release)
	}
	var refusal error
	if options.Mode == probe.Automatic || options.Mode == probe.Session {
		k, err := loadMode(options, probe.Session)
		if err == nil || options.Mode == probe.Session {
			return k, err
		}
		refusal = err
	}
	mode := options.Mode
	if mode == probe.Automatic {
		mode = probe.Single
		if features.HaveBPFLinkUprobeMulti() == nil {
			mode = probe.Multi
		}
	}
	k, err := loadMode(options, mode)
	if err != nil {
		return nil, err
	}
	k.SessionRefusal = refusal
	return k, nil
}

func loadMode(config Config, mode probe.Mode) (*Kernel, error) {
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	var specs bpf.Specs
	if err := spec.Assign(&specs); err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	if err := configure(&specs, config); err != nil {
		return nil, fmt.Errorf("configure BPF object: %w", err)
	}

	types := btf.NewCache()
	switch mode {
	case probe.Session:
		specs.HeapSession.AttachType = probe.AttachTraceUprobeSession
		attachMany(specs.CudaOnEntry, specs.CudaOnReturn, specs.OnBlock, specs.HeapOnEntry)
		delete(spec.Programs, bpf.ProgHeapOnReturn)
		if err := matchSessionKfunc(spec, types); err != nil {
			return nil, err
		}
	case probe.Multi:
		attachMany(specs.CudaOnEntry, specs.CudaOnReturn, specs.OnBlock, specs.HeapOnEntry, specs.HeapOnReturn)
		delete(spec.Programs, bpf.ProgHeapSession)
	default:
		delete(spec.Programs, bpf.ProgHeapSession)
	}

	tables, mappings := specs.UnwindTables.InnerMap, specs.Mappings.InnerMap
	objects, err := bpf.Load(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, explainRefusal(err)
	}
	return &Kernel{Objects: objects, Mode: mode, TableSpec: tables, MappingSpec: mappings}, nil
}

// attachMany marks programs that one link attaches to many places.
func attachMany(programs ...*ebpf.ProgramSpec) {
	for _, program := range programs {
		program.AttachType = ebpf.AttachTraceUprobeMulti
	}
}

// explainRefusal adds the remedy to an error of loading.
func explainRefusal(err error) error {
	if missing, err := MissingPrivileges(); err != nil || len(missing) > 0 {
		// Without the library's words: it takes a refusal for a low RLIMIT_MEMLOCK or for an old kernel, as chance has it.
		return fmt.Errorf("load BPF programs: %w (run as root or grant CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE)", syscall.EPERM)
	}
	return fmt.Errorf("load BPF programs: %w (see allocscope doctor, and --debug for the verifier's log)", err)
}

// sessionKfunc is the kernel function that tells the entry of a probed function from its return.
const sessionKfunc = "bpf_session_is_return"

// matchSessionKfunc takes the argument out of our declaration of sessionKfunc where the kernel's has none (it has none in
// 6.18, and the context in 7.3), because the library wants the two alike. The program passes it in any case.
func matchSessionKfunc(spec *ebpf.CollectionSpec, types *btf.Cache) error {
	kernel, err := types.Kernel()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w", err)
	}
	var theirs, ours *btf.Func
	if err := kernel.TypeByName(sessionKfunc, &theirs); err != nil {
		return fmt.Errorf("find %s in the kernel's BTF: %w (uprobe sessions need Linux 6.13 or newer)", sessionKfunc, err)
	}
	if err := spec.Types.TypeByName(sessionKfunc, &ours); err != nil {
		return fmt.Errorf("find %s in the BPF object: %w", sessionKfunc, err)
	}
	theirType, hasTheirs := theirs.Type.(*btf.FuncProto)
	ourType, hasOurs := ours.Type.(*btf.FuncProto)
	if hasTheirs && hasOurs && len(theirType.Params) == 0 {
		ourType.Params = nil
	}
	return nil
}

// maxTensors bounds the sampled tensors that are followed at a time.
const maxTensors = 1 << 16

// configure sets what is known before loading.
func configure(specs *bpf.Specs, config Config) error {
	specs.Live.MaxEntries = uint32(config.MaxLive)
	specs.Tensors.MaxEntries = uint32(min(config.MaxLive, maxTensors))
	specs.ReportedStacks.MaxEntries = uint32(config.MaxStacks)
	specs.Tallies.MaxEntries = uint32(2 * config.MaxStacks)
	specs.Faults.MaxEntries = uint32(config.MaxFaults)
	if err := specs.PageSize.Set(uint64(os.Getpagesize())); err != nil {
		return err
	}
	device, inode, err := PIDNamespace()
	if err != nil {
		return err
	}
	if err := specs.PidnsDevice.Set(device); err != nil {
		return err
	}
	return specs.PidnsInode.Set(inode)
}

// initialPIDNamespace is the inode of the first PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const initialPIDNamespace = 0xEFFFFFFC

// PIDNamespace identifies our PID namespace to the kernel; zeros for the initial one.
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

// ErrPIDNamespace means that a process cannot be told from others: the kernel side sees PIDs of one namespace, or of all of them
// where that is the initial one.
var ErrPIDNamespace = errors.New("is in a PID namespace of its own within ours (run allocscope on the host)")

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
		return fmt.Errorf("pid %d: %w", pid, ErrPIDNamespace)
	}
	return nil
}

// setTarget tells the kernel side what to do with events of a process.
func (k *Kernel) SetTarget(pid int, state bpf.TargetState) error {
	if err := k.Targets.Put(uint32(pid), state); err != nil {
		return fmt.Errorf("set target: %w", err)
	}
	return nil
}

// open makes the probes of sources heap and tensor count, with so many bytes between samples; 0: they do not.
func (k *Kernel) SetIntervals(interval, tensorInterval uint64) error {
	if err := k.Interval.Set(uint32(interval)); err != nil {
		return fmt.Errorf("set the sampling interval: %w", err)
	}
	if err := k.TensorInterval.Set(uint32(tensorInterval)); err != nil {
		return fmt.Errorf("set the sampling interval of tensors: %w", err)
	}
	return nil
}

func (k *Kernel) HeapPrograms() probe.Programs {
	return probe.Programs{
		Session: k.HeapSession,
		Entry:   k.HeapOnEntry,
		Return:  k.HeapOnReturn,
	}
}
