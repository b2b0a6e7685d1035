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
	*ebpf.Collection
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

func loadMode(options Config, mode probe.Mode) (*Kernel, error) {
	spec, err := bpf.LoadKernel()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	if err := configure(spec, options); err != nil {
		return nil, fmt.Errorf("configure BPF object: %w", err)
	}
	types := btf.NewCache()
	switch entry, exit := spec.Programs[bpf.ProgHeapOnEntry], spec.Programs[bpf.ProgHeapOnReturn]; mode {
	case probe.Session:
		spec.Programs[bpf.ProgHeapSession].AttachType = probe.AttachTraceUprobeSession
		attachMany(spec, entry)
		delete(spec.Programs, bpf.ProgHeapOnReturn)
		if err := matchSessionKfunc(spec, types); err != nil {
			return nil, err
		}
	case probe.Multi:
		attachMany(spec, entry, exit)
		delete(spec.Programs, bpf.ProgHeapSession)
	default:
		delete(spec.Programs, bpf.ProgHeapSession)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: types})
	if err != nil {
		return nil, explainRefusal(err)
	}
	return &Kernel{
		Collection:  collection,
		Mode:        mode,
		TableSpec:   spec.Maps[bpf.MapUnwindTables].InnerMap,
		MappingSpec: spec.Maps[bpf.MapMappings].InnerMap,
	}, nil
}

// attachMany makes the programs of source cuda, and others, such as are attached to many places by one link.
func attachMany(spec *ebpf.CollectionSpec, others ...*ebpf.ProgramSpec) {
	for _, name := range []string{bpf.ProgCudaOnEntry, bpf.ProgCudaOnReturn, bpf.ProgOnBlock} {
		others = append(others, spec.Programs[name])
	}
	for _, program := range others {
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
func configure(spec *ebpf.CollectionSpec, options Config) error {
	spec.Maps[bpf.MapLive].MaxEntries = uint32(options.MaxLive)
	spec.Maps[bpf.MapTensors].MaxEntries = uint32(min(options.MaxLive, maxTensors))
	spec.Maps[bpf.MapReportedStacks].MaxEntries = uint32(options.MaxStacks)
	spec.Maps[bpf.MapTallies].MaxEntries = uint32(2 * options.MaxStacks)
	spec.Maps[bpf.MapFaults].MaxEntries = uint32(options.MaxFaults)
	if err := spec.Variables[bpf.VarPageSize].Set(uint64(os.Getpagesize())); err != nil {
		return err
	}
	device, inode, err := PIDNamespace()
	if err != nil {
		return err
	}
	if err := spec.Variables[bpf.VarPidnsDevice].Set(device); err != nil {
		return err
	}
	return spec.Variables[bpf.VarPidnsInode].Set(inode)
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
	if err := k.Maps[bpf.MapTargets].Put(uint32(pid), state); err != nil {
		return fmt.Errorf("set target: %w", err)
	}
	return nil
}

// open makes the probes of sources heap and tensor count, with so many bytes between samples; 0: they do not.
func (k *Kernel) SetIntervals(interval, tensorInterval uint64) error {
	for name, value := range map[string]uint64{bpf.VarInterval: interval, bpf.VarTensorInterval: tensorInterval} {
		if err := k.Variables[name].Set(uint32(value)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

func (k *Kernel) HeapPrograms() probe.Programs {
	return probe.Programs{
		Session: k.Programs[bpf.ProgHeapSession],
		Entry:   k.Programs[bpf.ProgHeapOnEntry],
		Return:  k.Programs[bpf.ProgHeapOnReturn],
	}
}
