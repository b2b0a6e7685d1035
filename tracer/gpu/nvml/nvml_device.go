//go:build cgo

package nvml

import "github.com/NVIDIA/go-nvml/pkg/nvml"

// handleOf is NVML's handle of a GPU or of an instance of one.
type handleOf struct {
	*library
	handle nvml.Device
}

func (h handleOf) uuid() (string, error) {
	if !h.has("nvmlDeviceGetUUID") {
		return "", errNoCall
	}
	uuid, result := h.handle.GetUUID()
	return uuid, failure(result)
}

func (h handleOf) name() (string, error) {
	if !h.has("nvmlDeviceGetName") {
		return "", errNoCall
	}
	name, result := h.handle.GetName()
	return name, failure(result)
}

// memory is of the second version of the call where it works: the first counts what the driver reserves as used.
func (h handleOf) memory() (used, total uint64, err error) {
	if h.has("nvmlDeviceGetMemoryInfo_v2") {
		if info, result := h.handle.GetMemoryInfo_v2(); result == nvml.SUCCESS {
			return info.Used, info.Total, nil
		}
	}
	if !h.has("nvmlDeviceGetMemoryInfo") {
		return 0, 0, errNoCall
	}
	info, result := h.handle.GetMemoryInfo()
	return info.Used, info.Total, failure(result)
}

func (h handleOf) divided() (bool, error) {
	if !h.has("nvmlDeviceGetMigMode") {
		return false, errNoCall
	}
	current, _, result := h.handle.GetMigMode()
	return result == nvml.SUCCESS && current == nvml.DEVICE_MIG_ENABLE, failure(result)
}

func (h handleOf) slots() (int, error) {
	if !h.has("nvmlDeviceGetMaxMigDeviceCount") {
		return 0, errNoCall
	}
	count, result := h.handle.GetMaxMigDeviceCount()
	return count, failure(result)
}

func (h handleOf) instance(slot int) (device, error) {
	if !h.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return nil, errNoCall
	}
	handle, result := h.handle.GetMigDeviceHandleByIndex(slot)
	return handleOf{h.library, handle}, failure(result)
}

func (h handleOf) processes(l list) (uses []use, err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // go-nvml makes room for as many as the driver says, which may be none
			uses, err = nil, panicOf(panicked)
		}
	}()
	name, ask := "nvmlDeviceGetComputeRunningProcesses", h.handle.GetComputeRunningProcesses
	switch l {
	case graphics:
		name, ask = "nvmlDeviceGetGraphicsRunningProcesses", h.handle.GetGraphicsRunningProcesses
	case shared:
		name, ask = "nvmlDeviceGetMPSComputeRunningProcesses", h.handle.GetMPSComputeRunningProcesses
	}
	if !h.hasAny(name+"_v3", name+"_v2", name) {
		return nil, errNoCall
	}
	entries, result := ask() // go-nvml makes room until the list fits
	uses = make([]use, 0, len(entries))
	for _, e := range entries {
		uses = append(uses, use{e.Pid, e.GpuInstanceId, e.ComputeInstanceId, e.UsedGpuMemory})
	}
	return uses, failure(result)
}
