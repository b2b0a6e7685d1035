//go:build cgo

package nvml

//go:generate ./names.sh

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "bind.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/allocscope/allocscope/growth"
)

// IsBuilt reports whether this build can load NVML.
const IsBuilt = true

// defaultLibrary is the name by which the dynamic linker finds NVML.
const defaultLibrary = "libnvidia-ml.so.1"

// sharedObject is a library that is loaded for the rest of the program, with go-nvml's calls bound
// to it.
type sharedObject struct{ handle unsafe.Pointer }

// loadSharedObject loads a library and binds go-nvml's calls to it.
func loadSharedObject(path string) (*sharedObject, error) {
	runtime.LockOSThread() // dlerror is per thread
	defer runtime.UnlockOSThread()

	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))

	handle := C.dlopen(name, C.RTLD_LAZY)
	if handle == nil {
		text := C.GoString(C.dlerror())
		if strings.Contains(text, "cannot open shared object file: No such file") {
			return nil, ErrNoLibrary
		}
		return nil, fmt.Errorf("%w: %s", ErrLibrary, growth.Truncate(growth.Printable(text), 2*maxNameBytes))
	}

	C.bind_nvml(handle)
	return &sharedObject{handle}, nil
}

// has reports whether the library has a symbol.
func (o *sharedObject) has(name string) bool {
	symbol := C.CString(name)
	defer C.free(unsafe.Pointer(symbol))
	return C.dlsym(o.handle, symbol) != nil
}

// loaded is the library of this program. go-nvml supports only one.
var loaded struct {
	sync.Mutex
	path   string
	object *sharedObject
	calls  nvml.Interface
}

// library is NVML by go-nvml. Each symbol is looked up before go-nvml calls it. Results are not
// passed to nvmlErrorString: that is a call of the library, too, which it may lack.
type library struct {
	path  string
	calls nvml.Interface         // nil: not loaded
	has   func(name string) bool // nil: not loaded
}

func newDriver(path string) driver {
	if path == "" {
		path = defaultLibrary
	}
	return &library{path: path}
}

// load loads the library.
func (l *library) load() error {
	loaded.Lock()
	defer loaded.Unlock()

	if loaded.object == nil {
		object, err := loadSharedObject(l.path)
		if err != nil {
			return err
		}
		loaded.path, loaded.object, loaded.calls = l.path, object, nvml.New(
			nvml.WithLibraryPath(l.path))
	}
	if loaded.path != l.path {
		return fmt.Errorf("%w: %s is loaded already", ErrLibrary,
			growth.Truncate(growth.Printable(loaded.path), maxNameBytes))
	}

	object, known := loaded.object, make(map[string]bool)
	l.calls = loaded.calls
	l.has = func(name string) bool {
		found, ok := known[name]
		if !ok {
			found = object.has(name)
			known[name] = found
		}
		return found
	}
	return nil
}

// hasAny reports whether the library has any version of a call. go-nvml calls the newest.
func (l *library) hasAny(names ...string) bool {
	for _, name := range names {
		if l.has(name) {
			return true
		}
	}
	return false
}

func (l *library) start() error {
	if l.calls == nil {
		if err := l.load(); err != nil {
			return err
		}
	}
	if !l.hasAny("nvmlInit_v2", "nvmlInit") || !l.has("nvmlShutdown") {
		return fmt.Errorf("%w: it is not NVIDIA's: it has no nvmlInit or no nvmlShutdown",
			ErrLibrary)
	}

	err := resultError(l.calls.Init())
	if errors.Is(err, errDriverGone) {
		return ErrNoDriver
	}
	return err
}

// stop undoes start. An error of nvmlShutdown has no remedy.
func (l *library) stop() { _ = l.calls.Shutdown() }

func (l *library) version() (string, error) {
	if !l.has("nvmlSystemGetDriverVersion") {
		return "", errNoFunction
	}
	version, result := l.calls.SystemGetDriverVersion()
	return version, resultError(result)
}

func (l *library) count() (int, error) {
	if !l.hasAny("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") {
		return 0, errNoFunction
	}
	count, result := l.calls.DeviceGetCount()
	return count, resultError(result)
}

func (l *library) device(index int) (device, error) {
	if !l.hasAny("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") {
		return nil, errNoFunction
	}
	handle, result := l.calls.DeviceGetHandleByIndex(index)
	return nvmlDevice{l, handle}, resultError(result)
}

// nvmlDevice is an nvmlDevice_t of a library.
type nvmlDevice struct {
	*library
	handle nvml.Device
}

func (d nvmlDevice) uuid() (string, error) {
	if !d.has("nvmlDeviceGetUUID") {
		return "", errNoFunction
	}
	uuid, result := d.handle.GetUUID()
	return uuid, resultError(result)
}

func (d nvmlDevice) name() (string, error) {
	if !d.has("nvmlDeviceGetName") {
		return "", errNoFunction
	}
	name, result := d.handle.GetName()
	return name, resultError(result)
}

// memory prefers nvmlDeviceGetMemoryInfo_v2: the first version counts memory reserved by the driver
// as used.
func (d nvmlDevice) memory() (used, total uint64, err error) {
	if d.has("nvmlDeviceGetMemoryInfo_v2") {
		if info, result := d.handle.GetMemoryInfo_v2(); result == nvml.SUCCESS {
			return info.Used, info.Total, nil
		}
	}
	if !d.has("nvmlDeviceGetMemoryInfo") {
		return 0, 0, errNoFunction
	}
	info, result := d.handle.GetMemoryInfo()
	return info.Used, info.Total, resultError(result)
}

func (d nvmlDevice) inMIGMode() (bool, error) {
	if !d.has("nvmlDeviceGetMigMode") {
		return false, errNoFunction
	}
	current, _, result := d.handle.GetMigMode()
	return result == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE, resultError(result)
}

func (d nvmlDevice) maxMIGDevices() (int, error) {
	if !d.has("nvmlDeviceGetMaxMigDeviceCount") {
		return 0, errNoFunction
	}
	count, result := d.handle.GetMaxMigDeviceCount()
	return count, resultError(result)
}

func (d nvmlDevice) migDevice(index int) (device, error) {
	if !d.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil, errNoFunction
	}
	handle, result := d.handle.GetMigDeviceHandleByIndex(index)
	return nvmlDevice{d.library, handle}, resultError(result)
}

func (d nvmlDevice) processes(list processList) (entries []processEntry, err error) {
	defer func() {
		// go-nvml allocates as many entries as the driver asks for, and panics on none.
		if panicked := recover(); panicked != nil {
			entries, err = nil, panicError(panicked)
		}
	}()

	name, call := "nvmlDeviceGetComputeRunningProcesses", d.handle.GetComputeRunningProcesses
	switch list {
	case graphicsList:
		name, call = "nvmlDeviceGetGraphicsRunningProcesses", d.handle.GetGraphicsRunningProcesses
	case mpsList:
		name = "nvmlDeviceGetMPSComputeRunningProcesses"
		call = d.handle.GetMPSComputeRunningProcesses
	}
	if !d.hasAny(name+"_v3", name+"_v2", name) {
		return nil, errNoFunction
	}

	infos, result := call()
	entries = make([]processEntry, 0, len(infos))
	for _, i := range infos {
		entries = append(entries,
			processEntry{i.Pid, i.GpuInstanceId, i.ComputeInstanceId, i.UsedGpuMemory})
	}
	return entries, resultError(result)
}

// resultError returns the error for an nvmlReturn_t; nil: success.
// https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
func resultError(result nvml.Return) error {
	switch result {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
		return errDriverGone
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return ErrMismatch
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return ErrNoLibrary
	case nvml.ERROR_NO_PERMISSION:
		return ErrNoPermission
	case nvml.ERROR_NOT_SUPPORTED:
		return errNotSupported
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return errNoFunction
	case nvml.ERROR_NOT_FOUND:
		return errNotFound
	case nvml.ERROR_GPU_IS_LOST:
		return errLost
	case nvml.ERROR_RESET_REQUIRED:
		return errReset
	}
	return fmt.Errorf("NVML's error %d (its number in nvml.h)", int32(result))
}
