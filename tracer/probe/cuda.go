package probe

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// cudaFunctions are those of CUDA's driver that allocate, pin and free (cuda.h, "Memory Management", "Stream Ordered Memory
// Allocator" and "Virtual Memory Management"). Those that give back come first: an allocation must not be seen before its release can be.
// Reserving addresses takes no memory; memory that is mapped there is kept by that.
var cudaFunctions = []Function{
	{Name: "cuMemFree_v2", Form: bpf.KernelCallFormCALL_CUDA_FREE, Arguments: 1},
	{Name: "cuMemFreeAsync", Form: bpf.KernelCallFormCALL_CUDA_FREE, Arguments: 1},
	{Name: "cuMemFreeAsync_ptsz", Form: bpf.KernelCallFormCALL_CUDA_FREE, Arguments: 1},
	{Name: "cuMemFreeHost", Form: bpf.KernelCallFormCALL_CUDA_FREE, Arguments: 1},
	{Name: "cuMemRelease", Form: bpf.KernelCallFormCALL_CUDA_RELEASE, Arguments: 1},
	{Name: "cuMemUnmap", Form: bpf.KernelCallFormCALL_CUDA_UNMAP, Arguments: 2},
	{Name: "cuMemHostUnregister", Form: bpf.KernelCallFormCALL_CUDA_UNREGISTER, Arguments: 1},
	{Name: "cuMemAlloc_v2", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemAllocPitch_v2", Form: bpf.KernelCallFormCALL_CUDA_PITCH, Arguments: 4},
	{Name: "cuMemAllocManaged", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemAllocAsync", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemAllocAsync_ptsz", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemAllocFromPoolAsync", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemAllocFromPoolAsync_ptsz", Form: bpf.KernelCallFormCALL_CUDA_ALLOCATE, Arguments: 2},
	{Name: "cuMemCreate", Form: bpf.KernelCallFormCALL_CUDA_CREATE, Arguments: 3},
	{Name: "cuMemRetainAllocationHandle", Form: bpf.KernelCallFormCALL_CUDA_RETAIN, Arguments: 2},
	{Name: "cuMemMap", Form: bpf.KernelCallFormCALL_CUDA_MAP, Arguments: 4},
	{Name: "cuMemHostAlloc", Form: bpf.KernelCallFormCALL_CUDA_PIN, Arguments: 2},
	{Name: "cuMemAllocHost_v2", Form: bpf.KernelCallFormCALL_CUDA_PIN, Arguments: 2},
	{Name: "cuMemHostRegister_v2", Form: bpf.KernelCallFormCALL_CUDA_REGISTER, Arguments: 2},
}

// ErrNoCUDA means that a file is not CUDA's driver, whatever its name.
var ErrNoCUDA = errors.New("it exports no cuMemAlloc_v2 and cuMemFree_v2")

// IsCUDA tells by its path in the process's maps whether a file is CUDA's driver: libcuda.so.1, or what that is a link to.
func IsCUDA(file string) bool {
	return strings.HasPrefix(path.Base(strings.TrimSuffix(file, " (deleted)")), "libcuda.so")
}

// UsesGPU tells by its path whether a file is mapped in processes that use a GPU: CUDA's driver, or torch's allocator for CUDA.
func UsesGPU(file string) bool {
	return IsCUDA(file) || strings.HasPrefix(path.Base(file), "libc10_cuda")
}

// ResolveCUDA finds the functions of CUDA's driver in a mapped file, and their sites. Those that this driver lacks are in Unprobed. The
// error wraps ErrNoCUDA if the file lacks what every driver has.
func ResolveCUDA(p *process.Process, mapping process.Mapping) (Target, error) {
	target := Target{File: mapping, Path: p.MappedPath(mapping)}
	opened, file, err := openFile(p, mapping)
	if err != nil {
		return Target{}, err
	}
	defer opened.Close()
	var lacking []string
	for i, f := range cudaFunctions {
		exported, ok := file.Export(f.Name)
		if !ok {
			lacking = append(lacking, f.Name)
			continue
		}
		site, err := siteAt(file, f, exported.Address)
		if err != nil {
			return Target{}, fmt.Errorf("probe %s in %s: %w", f.Name, mapping.Path, err)
		}
		site.number = i + 1
		target.Sites = append(target.Sites, site)
	}
	for _, name := range lacking {
		if name == "cuMemAlloc_v2" || name == "cuMemFree_v2" {
			return Target{}, fmt.Errorf("find CUDA's driver in %s: %w", mapping.Path, ErrNoCUDA)
		}
		target.Unprobed = append(target.Unprobed, name+" is not in this driver")
	}
	return target, nil
}

// The function to which torch's caching allocator for CUDA tells each block that it hands out or takes back
// (c10/core/Allocator.h). Its parameters are an address, bytes, two totals in bytes, signed in older versions, and the device.
const (
	blockFunction = "c10::reportMemoryUsageToProfiler"
	blockPrefix   = "_ZN3c1027reportMemoryUsageToProfilerE"
)

var blockNames = []string{blockPrefix + "PvlmmNS_6DeviceE", blockPrefix + "PvlllNS_6DeviceE"}

// Reasons for which blocks of torch's allocator cannot be followed.
var (
	ErrNoBlocks      = errors.New("it exports no " + blockFunction)
	ErrUnknownBlocks = errors.New("its " + blockFunction + " tells no totals, or tells them in another way (that of PyTorch 1.13 and 2.x is known)")
)

// ResolveBlocks finds the function to which torch's allocator for CUDA tells its blocks in a mapped file. The error wraps
// ErrNoBlocks if the file has none, and ErrUnknownBlocks if its parameters are not those that are known.
func ResolveBlocks(p *process.Process, mapping process.Mapping) (Target, error) {
	target := Target{File: mapping, Path: p.MappedPath(mapping)}
	opened, file, err := openFile(p, mapping)
	if err != nil {
		return Target{}, err
	}
	defer opened.Close()
	address, err := blockAddress(file, IsTensorLibrary(mapping.Path))
	if err != nil {
		return Target{}, fmt.Errorf("find %s in %s: %w", blockFunction, mapping.Path, err)
	}
	site, err := siteAt(file, Function{Name: blockFunction, Arguments: 5}, address)
	if err != nil {
		return Target{}, fmt.Errorf("probe %s in %s: %w", blockFunction, mapping.Path, err)
	}
	target.Sites = []Site{site}
	return target, nil
}

// blockAddress finds the function by the names that are known. Of a file that ought to have it, all names are read to tell why
// it has not.
func blockAddress(file *symbol.File, all bool) (uint64, error) {
	for _, name := range blockNames {
		if s, ok := file.Export(name); ok {
			return s.Address, nil
		}
	}
	err := ErrNoBlocks
	if !all {
		return 0, err
	}
	failed := file.EachFunction(symbol.Dynamic, func(name []byte, _ uint64, isLocal bool) {
		if bytes.HasPrefix(name, []byte(blockPrefix)) && !isLocal {
			err = ErrUnknownBlocks
		}
	})
	return 0, errors.Join(failed, err)
}

// AttachCUDA attaches to the functions of CUDA's driver in the given process, all or none. The probes of returns come first: where
// the entry of a call has been seen its return will be, too.
func AttachCUDA(mode Mode, target Target, entry, exit *ebpf.Program, pid int) ([]link.Link, error) {
	attach := attachCalls
	if mode == Single {
		attach = attachEachCall
	}
	links, err := attach(target, entry, exit, pid)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach to %s: %w", target.File.Path, err), Close(links))
	}
	return links, nil
}

func attachCalls(target Target, entry, exit *ebpf.Program, pid int) (links []link.Link, err error) {
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return nil, err
	}
	offsets, cookies := target.offsetsAndCookies()
	options := &link.UprobeMultiOptions{Addresses: offsets, Cookies: cookies, PID: uint32(pid)}
	returns, err := file.UretprobeMulti(nil, exit, options)
	if err != nil {
		return nil, fmt.Errorf("create uretprobe_multi link: %w", err)
	}
	entries, err := attachEntries(target, entry, pid)
	if err != nil {
		return []link.Link{returns}, err
	}
	return []link.Link{returns, entries}, nil
}

func attachEachCall(target Target, entry, exit *ebpf.Program, pid int) (links []link.Link, err error) {
	file, err := link.OpenExecutable(target.Path)
	if err != nil {
		return nil, err
	}
	for _, s := range target.Sites {
		options := &link.UprobeOptions{Address: s.Offset, PID: pid, Cookie: s.cookie()}
		l, err := file.Uretprobe("", exit, options)
		if err != nil {
			return links, fmt.Errorf("create uretprobe of %s: %w", s.Function.Name, err)
		}
		links = append(links, l)
		if l, err = file.Uprobe("", entry, options); err != nil {
			return links, fmt.Errorf("create uprobe of %s: %w", s.Function.Name, err)
		}
		links = append(links, l)
	}
	return links, nil
}

// AttachEntry attaches a program to the one site of a target in the given process, of which the return is of no interest.
func AttachEntry(mode Mode, target Target, entry *ebpf.Program, pid int) (link.Link, error) {
	if mode == Single {
		return AttachStep(target, entry, pid)
	}
	l, err := attachEntries(target, entry, pid)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", target.File.Path, err)
	}
	return l, nil
}
