// Package kernel loads the BPF programs and reads and sets their maps and variables.
package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/uprobe"
)

// Defaults and limits of a user's settings.
const (
	DefaultInterval  = 512 << 10 // bytes between samples
	MaxInterval      = 1 << 30   // bytes between samples
	DefaultMaxLive   = 1 << 18   // live sampled allocations
	DefaultMaxStacks = 65_536    // distinct stacks
)

// Sizes of maps that a user cannot set.
const (
	// MaxFaults is the number of pages whose newest sampled fault is kept. The kernel allocates
	// some 100 bytes for each, used or not.
	MaxFaults  = 65_536
	maxTensors = 1 << 16 // live sampled tensors
)

// A Kernel is the loaded BPF object.
type Kernel struct {
	*bpf.Loaded
	// Mode in which functions are probed.
	Mode probe.Mode
	// TableSpec and MappingSpec describe the inner maps of UnwindTables and Mappings.
	TableSpec, MappingSpec *ebpf.MapSpec
	// SessionRefusal is why the kernel refused probe.Session, for --debug. It is nil if the kernel
	// took it, or if Config asked for another mode.
	SessionRefusal error
	// SamplesItself is as in Config.
	SamplesItself bool

	checkFilter func() error // whether return probes are safe under seccomp filters; once
	producers   producerProbes
	users       users
	isShared    bool // more than one process may have a share
}

// Config is set before the BPF object is loaded.
type Config struct {
	// MaxLive is the largest number of live sampled allocations at a time.
	MaxLive int
	// MaxStacks is the number of distinct stacks that the BPF programs remember to have reported.
	MaxStacks int
	// MaxFaults is the largest number of pages whose newest sampled fault is kept.
	MaxFaults int
	// IsShared is set where several processes may be traced.
	IsShared bool
	// SamplesItself is set where the traced programs sample their heap, so that no function of an
	// allocator is probed: the programs of such probes need not be loaded.
	SamplesItself bool
	// Mode in which functions are probed. probe.Automatic is the best one that the kernel has.
	Mode probe.Mode
	// CheckFilter replaces calibrate.CheckFilter; nil: it is called once it is needed.
	CheckFilter func() error
}

// Load loads the BPF object in the mode of the config.
func Load(config Config) (*Kernel, error) {
	release, supported, err := Release()
	if err != nil {
		return nil, err
	}
	if !supported {
		return nil, fmt.Errorf("load BPF programs: "+
			"Linux %s is too old (allocscope needs Linux 5.15 or newer)", release)
	}
	if err := ownLimits().check(); err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	if config.Mode != probe.Automatic {
		return load(config, config.Mode)
	}

	var refusal error
	if !config.SamplesItself { // else no probe follows a return
		var k *Kernel
		if k, refusal = load(config, probe.Session); refusal == nil {
			return k, nil
		}
	}

	mode := probe.Single
	if features.HaveBPFLinkUprobeMulti() == nil {
		mode = probe.Multi
	}
	k, err := load(config, mode)
	if err != nil {
		return nil, err
	}
	k.SessionRefusal = refusal
	return k, nil
}

// load loads the BPF object in one mode.
func load(config Config, mode probe.Mode) (*Kernel, error) {
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
	if config.SamplesItself {
		specs.Tensors.MaxEntries = 1 // tensors are objects of the heap
	}

	if mode != probe.Single {
		addSingle(spec)
	}
	producers := []*ebpf.ProgramSpec{
		specs.ProducerAlloc, specs.ProducerFree, specs.ShimStart, specs.ShimMarker,
	}
	first := bpf.ProgHeapOnEntry // which the kernel refuses if it lacks the mode
	if config.SamplesItself {
		first = bpf.ProgProducerFree
	}
	switch mode {
	case probe.Session:
		first = bpf.ProgHeapSession
		specs.HeapSession.AttachType = uprobe.AttachTraceUprobeSession
		attachMulti(specs.CudaOnEntry, specs.CudaOnReturn, specs.OnBlock, specs.HeapOnEntry)
		attachMulti(producers...)
		delete(spec.Programs, bpf.ProgHeapOnReturn)
		if err := matchSessionKfunc(spec); err != nil {
			return nil, err
		}
	case probe.Multi:
		attachMulti(specs.CudaOnEntry, specs.CudaOnReturn, specs.OnBlock,
			specs.HeapOnEntry, specs.HeapOnReturn)
		attachMulti(producers...)
		delete(spec.Programs, bpf.ProgHeapSession)
	default:
		delete(spec.Programs, bpf.ProgHeapSession)
	}

	tables, mappings := specs.UnwindTables.InnerMap, specs.Mappings.InnerMap
	loaded, err := bpf.Load(spec)
	if err != nil {
		return nil, explainRefusal(err)
	}
	k := &Kernel{
		Loaded: loaded, Mode: mode, TableSpec: tables, MappingSpec: mappings,
		SamplesItself: config.SamplesItself,
		isShared:      config.IsShared, users: users{pids: make(map[uint32]bool), gone: make(map[uint32]bpf.Usage)},
	}
	check := config.CheckFilter
	if check == nil {
		check = func() error { return calibrate.CheckFilter(mode, k.Program) }
	}
	k.checkFilter = sync.OnceValue(check)
	if _, err := k.Program(first); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// singlePrefix begins the names of the programs that a perf event attaches, where links for many
// functions attach the others.
const singlePrefix = "single_"

// addSingle adds a copy of each program of uprobes for probe.Single. A program that is not used is
// not loaded. One array of programs serves one way to attach.
func addSingle(spec *ebpf.CollectionSpec) {
	const array = "no_programs"
	spec.Maps[singlePrefix+array] = spec.Maps[array].Copy()
	for _, name := range []string{
		bpf.ProgHeapOnEntry, bpf.ProgHeapOnReturn, bpf.ProgCudaOnEntry, bpf.ProgCudaOnReturn,
		bpf.ProgOnBlock, bpf.ProgProducerAlloc, bpf.ProgProducerFree,
	} {
		single := spec.Programs[name].Copy()
		for i := range single.Instructions {
			if single.Instructions[i].Reference() == array {
				single.Instructions[i] = single.Instructions[i].WithReference(singlePrefix + array)
			}
		}
		spec.Programs[singlePrefix+name] = single
	}
}

// single returns the program that a perf event attaches.
func (k *Kernel) single(name string) (*ebpf.Program, error) {
	p, err := k.Program(singlePrefix + name)
	if errors.Is(err, os.ErrNotExist) {
		return k.Program(name)
	}
	return p, err
}

// A Way is how probes are attached in a process: the mode, its programs, and a thread.
type Way struct {
	Mode     probe.Mode
	Programs probe.Programs
	TID      int
}

// WayIn returns how probes are attached in a process now. Links for many functions take the memory of
// the main thread (uprobe_multi_link_filter, kernel/trace/bpf_trace.c), which has none once it has
// ended: nothing would be probed. A perf event takes the memory of any thread, until that ends. nil
// is a process whose main thread lives.
func (k *Kernel) WayIn(p *process.Process) Way {
	if p == nil {
		return Way{Mode: k.Mode, Programs: k.Program}
	}
	if tid := p.TID(); tid != p.PID {
		return Way{probe.Single, k.single, tid}
	}
	return Way{k.Mode, k.Program, p.PID}
}

// Program is bpf.Loaded's Program, with the remedy in its error.
func (k *Kernel) Program(name string) (*ebpf.Program, error) {
	p, err := k.Loaded.Program(name)
	if err != nil {
		return nil, explainRefusal(err)
	}
	return p, nil
}

// ErrShadowStack means that a return probe may end a process whose returns the processor compares
// with a shadow stack: before Linux 6.11, a return probe changes the return address on the stack
// alone.
var ErrShadowStack = errors.New("return probes may end a process with a shadow stack")

// CheckReturns returns the reason for which return probes could end a process; nil: they are safe.
// A process may get a seccomp filter at any time, so that each attach needs a check of its own.
func (k *Kernel) CheckReturns(p *process.Process) error {
	status, err := p.Status()
	if err != nil {
		return err
	}
	if status.ShadowStack {
		return ErrShadowStack
	}

	isFiltered, err := p.HasFilter()
	if err != nil || !isFiltered {
		return err
	}
	return k.checkFilter()
}

// attachMulti marks programs that one link attaches to many functions.
func attachMulti(programs ...*ebpf.ProgramSpec) {
	for _, program := range programs {
		program.AttachType = ebpf.AttachTraceUprobeMulti
	}
}

// ErrLockdown means that the kernel's lockdown keeps BPF programs from reading the kernel's memory
// (kernel_lockdown(7)).
var ErrLockdown = errors.New("the kernel is locked down: BPF programs cannot read its memory")

// explainRefusal adds the remedy to an error of loading. Where the kernel has refused, the error is
// left out: cilium/ebpf may report a low RLIMIT_MEMLOCK, which does not matter from 5.11 on, or an old
// kernel.
func explainRefusal(err error) error {
	missing, capErr := MissingPrivileges()
	_, btfErr := os.Stat(BTFPath)
	isMissing := func(p Privilege) bool { return p.Without == "" }
	switch {
	case capErr != nil || slices.ContainsFunc(missing, isMissing):
		return fmt.Errorf("load BPF programs: %w (run as root or grant CAP_BPF and CAP_PERFMON)",
			syscall.EPERM)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("load BPF programs: %w (in a container, allow bpf and perf_event_open in "+
			"its seccomp profile, or run on the host; else a security module refuses bpf)",
			syscall.EPERM)
	case btfErr != nil:
		return fmt.Errorf("load BPF programs: read the kernel's BTF: %w (%s)", btfErr, BTFRemedy)
	case errors.Is(features.HaveProgramHelper(ebpf.Kprobe, asm.FnProbeRead),
		ebpf.ErrNotSupported):
		return fmt.Errorf("load BPF programs: %w "+
			"(boot it without lockdown=confidentiality; lockdown=integrity is no obstacle)",
			ErrLockdown)
	}
	return fmt.Errorf("load BPF programs: %w "+
		"(see allocscope doctor, and --debug for the verifier's log)", err)
}

// sessionKfunc returns to the BPF program whether it runs at a function's entry or at its return.
const sessionKfunc = "bpf_session_is_return"

// matchSessionKfunc removes the parameter from our declaration of sessionKfunc if the kernel's
// declaration has none. cilium/ebpf requires the two to be equal, and kernels differ: Linux 6.18
// has no parameter, 7.3 has the context. The program passes the context in any case.
func matchSessionKfunc(spec *ebpf.CollectionSpec) error {
	kernel, err := bpf.KernelTypes().Kernel()
	if err != nil {
		return fmt.Errorf("read the kernel's BTF: %w", err)
	}

	var theirs, ours *btf.Func
	if err := kernel.TypeByName(sessionKfunc, &theirs); err != nil {
		return fmt.Errorf("find %s in the kernel's BTF: %w "+
			"(uprobe sessions need Linux 6.13 or newer)", sessionKfunc, err)
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

// slowStepEvents is the time between two events of steps where no bursts are compared with the time
// around them. The mean of all steps is enough there, and an event costs more than a count.
const slowStepEvents = 100 * time.Millisecond

// configure sets the sizes of maps and the constants of the BPF programs.
func configure(specs *bpf.Specs, config Config) error {
	specs.Live.MaxEntries = sizeFor(config.MaxLive, config.IsShared)
	specs.Tensors.MaxEntries = sizeFor(min(config.MaxLive, maxTensors), config.IsShared)
	specs.ReportedStacks.MaxEntries = sizeFor(config.MaxStacks, config.IsShared)
	specs.Tallies.MaxEntries = uint32(2 * config.MaxStacks)
	specs.MappingPairs.MaxEntries = uint32(config.MaxStacks)
	specs.Faults.MaxEntries = uint32(config.MaxFaults)

	if err := specs.PageSize.Set(process.PageSize); err != nil {
		return err
	}
	if err := specs.StackSeed.Set(rand.Uint64()); err != nil {
		return err
	}
	if config.SamplesItself {
		if err := specs.StepEventPeriod.Set(uint64(slowStepEvents)); err != nil {
			return err
		}
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

// SetIntervals sets the bytes between samples of sources heap and tensor. With 0 their probes count
// nothing, even while they are attached.
func (k *Kernel) SetIntervals(interval, tensorInterval uint64) error {
	if err := k.Interval.Set(uint32(interval)); err != nil {
		return fmt.Errorf("set the sampling interval: %w", err)
	}

	if err := k.TensorInterval.Set(uint32(tensorInterval)); err != nil {
		return fmt.Errorf("set the sampling interval of tensors: %w", err)
	}
	return nil
}

// SetCosts sets the costs that the BPF programs charge for their events.
func (k *Kernel) SetCosts(costs bpf.ProbeCosts) error {
	if err := k.Costs.Set(costs); err != nil {
		return fmt.Errorf("set the costs of probes: %w", err)
	}
	return nil
}

// LimitWalks sets the share of the time that stack walks for mapping calls and page faults may take,
// over all processes. Beyond it a mapping call takes the stack of an earlier one of its site, or none;
// page faults are left to the next sampled one.
func (k *Kernel) LimitWalks(share float64) error {
	if err := k.WalkBudget.Set(uint64(share * float64(time.Second))); err != nil {
		return fmt.Errorf("set the budget of stack walks: %w", err)
	}
	return nil
}

// A BusiestTime has the time that a thread has lost to tracing, each in the thread that lost most.
type BusiestTime struct{ InProbes, Waited, InShim time.Duration }

// TakeBusiest returns the time since the last call. Callers must not run concurrently.
func (k *Kernel) TakeBusiest() (t BusiestTime, err error) {
	var window uint32
	var busiest, waits, shim [2]uint64
	read := func() error {
		return errors.Join(k.Busiest.Get(&busiest), k.LongestWait.Get(&waits), k.BusiestShim.Get(&shim))
	}
	err = errors.Join(k.ChargeWindow.Get(&window), read())

	// The other slot may have the last stores of threads that were late for the window before.
	ended := window & 1
	busiest[1-ended], waits[1-ended], shim[1-ended] = 0, 0, 0
	if err == nil {
		err = errors.Join(
			k.Busiest.Set(busiest), k.LongestWait.Set(waits), k.BusiestShim.Set(shim))
	}
	if err == nil {
		err = errors.Join(k.ChargeWindow.Set(window+1), read())
	}
	if err != nil {
		return t, fmt.Errorf("read the time in probes: %w", err)
	}
	return BusiestTime{
		InProbes: time.Duration(busiest[ended]), Waited: time.Duration(waits[ended]),
		InShim: time.Duration(shim[ended] / 1000), // from ps
	}, nil
}

// Sweep calls probe.Sweep for files, with a program that counts nothing in our own process.
func (k *Kernel) Sweep(files []probe.FileSites) error {
	var errs []error
	for _, file := range files {
		errs = append(errs, probe.Sweep(k.Mode, file, k.Program))
	}
	return errors.Join(errs...)
}

// Monotonic returns the time of CLOCK_MONOTONIC in ns, which is the clock of the BPF programs.
func Monotonic() uint64 { return uint64(process.Monotonic()) }
