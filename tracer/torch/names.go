package torch

import (
	"path"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/process"
)

// Files of PyTorch, without ".so" and a version.
const (
	LibC10         = "libc10"          // its allocators
	LibC10CUDA     = "libc10_cuda"     // its caching allocator
	LibTorchCPU    = "libtorch_cpu"    // its autograd engine
	LibTorchPython = "libtorch_python" // its Python module
)

// A Function is a function of PyTorch whose parameters may differ by version. They are a part of
// its mangled name.
type Function struct {
	Name   string // demangled, without parameters
	Prefix string // of the mangled name
	Known  []string
}

// AllocCPU and FreeCPU allocate and free the memory of CPU tensors. Up to 2.14 all versions have
// the known names.
// https://github.com/pytorch/pytorch/blob/main/c10/core/impl/alloc_cpu.h
var (
	AllocCPU = Function{"c10::alloc_cpu", "_ZN3c109alloc_cpuE", []string{"_ZN3c109alloc_cpuEm"}}
	FreeCPU  = Function{"c10::free_cpu", "_ZN3c108free_cpuE", []string{"_ZN3c108free_cpuEPv"}}
)

// ReportMemoryUsage is the function to which the caching allocator reports each block that it hands
// out or takes back. Its parameters are an address, bytes, two totals in bytes, which are signed in
// older versions, and the device.
// https://github.com/pytorch/pytorch/blob/main/c10/core/Allocator.h
var ReportMemoryUsage = Function{
	"c10::reportMemoryUsageToProfiler", "_ZN3c1027reportMemoryUsageToProfilerE", []string{
		"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
		"_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
	},
}

// EngineExecute is the start of the mangled name of torch::autograd::Engine::execute, which PyTorch
// calls once for each backward pass.
const EngineExecute = "_ZN5torch8autograd6Engine7executeE"

// StorageImplVtable is the demangled name of the vtable of storages.
const StorageImplVtable = "vtable for c10::StorageImpl"

// TensorTypes are the types of tensors in Python from which all others are derived.
var TensorTypes = map[string]bool{
	"torch.Tensor": true, "torch._C.TensorBase": true, "torch._C._TensorBase": true,
}

// TensorClasses are the classes of most tensors in Python, by their module.
var TensorClasses = map[string]string{"torch": "Tensor", "torch.nn.parameter": "Parameter"}

// HasStorageImpl reports whether a file has the vtable of storages. Two files have it, and the
// dynamic linker takes the first one.
func HasStorageImpl(m process.Mapping) bool {
	name := path.Base(m.Path)
	return strings.HasPrefix(name, LibTorchPython) || strings.HasPrefix(name, LibC10+".so")
}

// IsStorageData reports whether a StorageImpl may have the pointer to its data, or to the owner of
// the data, at an offset: the first two fields of data_ptr_.
func IsStorageData(offset uint64) bool {
	return slices.ContainsFunc(layouts, func(l layout) bool {
		return offset >= l.data && offset < l.data+2*8
	})
}

// SharesObject reports whether a TensorImpl counts as one reference to its object of Python, by the
// offset of the pointer to the object and the word behind the vtable. Since 2.10 it does where C++
// refers to it besides the object: combined_refcount_ has kHasPyObject then, and 2 or more.
// https://github.com/pytorch/pytorch/blob/main/c10/util/intrusive_ptr.h
func SharesObject(offset, counts uint64) bool {
	const hasPyObject = 1 << 63
	isSlot := slices.ContainsFunc(layouts, func(l layout) bool {
		return offset == l.pyobj && !l.mayBorrow()
	})
	return isSlot && counts&hasPyObject != 0 && uint32(counts) > 1
}

// IsUnshared reports whether one pointer of C++ refers to a TensorImpl, by the word behind the
// vtable: refcount_, or in its lower half.
func IsUnshared(counts uint64) bool { return uint32(counts) == 1 }
