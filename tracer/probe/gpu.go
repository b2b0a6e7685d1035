package probe

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/torch"
)

// cudaFunctions are the functions of the CUDA driver API that allocate, pin and free, <cuda.h>:
// https://docs.nvidia.com/cuda/cuda-driver-api/ ("Memory Management", "Stream Ordered Memory
// Allocator", "Virtual Memory Management"). Those that free come first: no allocation may be seen
// before its release can be. Reserved addresses take no memory. Memory that is mapped there stays
// allocated while it is mapped.
var cudaFunctions = []Function{
	{Name: "cuMemFree_v2", Form: bpf.CallCudaFree, Arguments: 1},
	{Name: "cuMemFreeAsync", Form: bpf.CallCudaFree, Arguments: 1},
	{Name: "cuMemFreeAsync_ptsz", Form: bpf.CallCudaFree, Arguments: 1},
	{Name: "cuMemFreeHost", Form: bpf.CallCudaFree, Arguments: 1},
	{Name: "cuMemRelease", Form: bpf.CallCudaRelease, Arguments: 1},
	{Name: "cuMemUnmap", Form: bpf.CallCudaUnmap, Arguments: 2},
	{Name: "cuMemHostUnregister", Form: bpf.CallCudaUnregister, Arguments: 1},
	{Name: "cuMemAlloc_v2", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemAllocPitch_v2", Form: bpf.CallCudaPitch, Arguments: 4},
	{Name: "cuMemAllocManaged", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemAllocAsync", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemAllocAsync_ptsz", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemAllocFromPoolAsync", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemAllocFromPoolAsync_ptsz", Form: bpf.CallCudaAllocate, Arguments: 2},
	{Name: "cuMemCreate", Form: bpf.CallCudaCreate, Arguments: 3},
	{Name: "cuMemRetainAllocationHandle", Form: bpf.CallCudaRetain, Arguments: 2},
	{Name: "cuMemMap", Form: bpf.CallCudaMap, Arguments: 4},
	{Name: "cuMemHostAlloc", Form: bpf.CallCudaPin, Arguments: 2},
	{Name: "cuMemAllocHost_v2", Form: bpf.CallCudaPin, Arguments: 2},
	{Name: "cuMemHostRegister_v2", Form: bpf.CallCudaRegister, Arguments: 2},
}

// ErrNoCUDADriver means that a file is not the CUDA driver, whatever its name.
var ErrNoCUDADriver = errors.New("it exports no cuMemAlloc_v2 and cuMemFree_v2")

// IsCUDADriver reports by its path in the process's maps whether a file is the CUDA driver:
// libcuda.so.1, or the file that this links to.
func IsCUDADriver(file string) bool {
	return strings.HasPrefix(path.Base(strings.TrimSuffix(file, " (deleted)")), "libcuda.so")
}

// UsesGPU reports by a mapped file's path whether its process may use a GPU: the file is the CUDA
// driver, or PyTorch's caching allocator.
func UsesGPU(file string) bool {
	return IsCUDADriver(file) || strings.HasPrefix(path.Base(file), torch.LibC10CUDA)
}

// ResolveCUDADriver finds the functions of the CUDA driver API in a mapped file, and their sites.
// Functions that this driver lacks are in Unprobed. The error wraps ErrNoCUDADriver if the file
// lacks functions that every driver has.
func ResolveCUDADriver(p *process.Process, mapping process.Mapping) (FileSites, error) {
	var unprobed []string
	result, err := resolveFile(p, mapping, func(file *symbol.File) (found []definition, err error) {
		for _, f := range cudaFunctions {
			exported, ok := file.Export(f.Name)
			switch {
			case ok:
				found = append(found, definition{function: f, address: exported.Address})
			case f.Name == "cuMemAlloc_v2" || f.Name == "cuMemFree_v2":
				return nil, fmt.Errorf("find CUDA's driver in %s: %w", mapping.Path, ErrNoCUDADriver)
			default:
				unprobed = append(unprobed, f.Name+" is not in this driver")
			}
		}
		return found, nil
	})
	if err != nil {
		return FileSites{}, err
	}

	result.Unprobed = append(result.Unprobed, unprobed...)
	for i := range result.Sites {
		result.Sites[i].number = i + 1
	}

	return result, nil
}

// blockFunction is the function to which PyTorch's caching allocator reports its blocks.
var blockFunction = torch.ReportMemoryUsage

// Reasons for which blocks of PyTorch's caching allocator cannot be probed.
var (
	ErrNoBlocks      = errors.New("it exports no " + blockFunction.Name)
	ErrUnknownBlocks = errors.New("its " + blockFunction.Name + " reports no totals, or in another way " +
		"(that of PyTorch 1.13 and 2.x is known)")
)

// ResolveBlocks finds the function that PyTorch's caching allocator reports its blocks to in a
// mapped file. The error wraps ErrNoBlocks if the file has none, and ErrUnknownBlocks if its
// parameters are unknown.
func ResolveBlocks(p *process.Process, mapping process.Mapping) (FileSites, error) {
	return resolveFile(p, mapping, func(file *symbol.File) ([]definition, error) {
		address, err := blockAddress(file, IsTensorLibrary(mapping.Path))
		if err != nil {
			return nil, fmt.Errorf("find %s in %s: %w", blockFunction.Name, mapping.Path, err)
		}
		function := Function{Name: blockFunction.Name, Arguments: 5}
		return []definition{{function: function, address: address}}, nil
	})
}

// blockAddress finds the function by its known names. Where that fails and all is set, it reads all
// names of the file for the reason.
func blockAddress(file *symbol.File, all bool) (uint64, error) {
	for _, name := range blockFunction.Known {
		if s, ok := file.Export(name); ok {
			return s.Address, nil
		}
	}

	err := ErrNoBlocks
	if !all {
		return 0, err
	}
	failed := file.EachFunction(symbol.Dynsym, func(name []byte, _ uint64, isLocal bool) {
		if bytes.HasPrefix(name, []byte(blockFunction.Prefix)) && !isLocal {
			err = ErrUnknownBlocks
		}
	})
	return 0, errors.Join(failed, err)
}
