//go:build cgo

package nvml

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/allocscope/allocscope/growth"
)

// mockedDevice is a GPU as go-nvml's mock makes them; what a test does not set must not be called.
func mockedDevice(uuid string, used, total uint64, processes ...nvml.ProcessInfo) *mock.Device {
	none := func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	return &mock.Device{
		GetUUIDFunc:          func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:          func() (string, nvml.Return) { return "mocked", nvml.SUCCESS },
		GetMigModeFunc:       func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_DISABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{Used: used, Total: total}, nvml.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return processes, nvml.SUCCESS
		},
		GetGraphicsRunningProcessesFunc:   none,
		GetMPSComputeRunningProcessesFunc: none,
	}
}

// mocked is NVML with some GPUs, whose library lacks some names.
func mocked(devices []*mock.Device, lacking ...string) *library {
	return &library{
		has: func(name string) bool { return !slices.Contains(lacking, name) },
		calls: &mock.Interface{
			InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
			ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
			SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "580.1", nvml.SUCCESS },
			DeviceGetCountFunc:         func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
			DeviceGetHandleByIndexFunc: func(index int) (nvml.Device, nvml.Return) { return devices[index], nvml.SUCCESS },
		},
	}
}

func TestMockedGPUsAreRead(t *testing.T) {
	t.Parallel()
	m := mustOpen(t, mocked([]*mock.Device{
		mockedDevice("GPU-a", 5, 10, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 3}),
		mockedDevice("GPU-b", 6, 10, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: notAvailable}),
	}))
	want := Reading{Driver: "580.1", Reason: "GPU 1: the memory of some processes is not told", GPUs: []GPU{
		{0, whole, "GPU-a", "mocked", 5, 10, []Process{{7, 3}}},
		{1, whole, "GPU-b", "mocked", 6, 10, []Process{{7, growth.Unknown}}},
	}}
	if got := m.Read(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestMockedInstancesAreRead(t *testing.T) {
	t.Parallel()
	gpu, instance := mockedDevice("GPU-a", 50, 100), mockedDevice("MIG-a", 5, 10, nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 3})
	gpu.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS }
	gpu.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 3, nvml.SUCCESS }
	gpu.GetMigDeviceHandleByIndexFunc = func(slot int) (nvml.Device, nvml.Return) {
		if slot != 1 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return instance, nvml.SUCCESS
	}
	m := mustOpen(t, mocked([]*mock.Device{gpu}))
	want := Reading{Driver: "580.1", GPUs: []GPU{{0, 1, "MIG-a", "mocked", 5, 10, []Process{{7, 3}}}}}
	if got := m.Read(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The mock panics at calls that are not set: each is one that must not be made.
func TestNamesThatAMockedLibraryLacksAreNotCalled(t *testing.T) {
	t.Parallel()
	d := mockedDevice("GPU-a", 5, 10)
	d.GetMemoryInfo_v2Func = nil
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Used: 6, Total: 10}, nvml.SUCCESS }
	d.GetUUIDFunc, d.GetNameFunc, d.GetMigModeFunc = nil, nil, nil
	d.GetGraphicsRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = nil, nil
	lacking := []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMigMode"}
	for _, name := range []string{"nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"} {
		lacking = append(lacking, name, name+"_v2", name+"_v3")
	}
	want := Reading{
		Driver: "580.1", Reason: "GPU 0: graphics processes: " + errNoCall.Error(),
		GPUs: []GPU{{0, whole, "", "", 6, 10, []Process{}}},
	}
	if got := mustOpen(t, mocked([]*mock.Device{d}, lacking...)).Read(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWhereTheSecondVersionOfMemoryFailsTheFirstIsAsked(t *testing.T) {
	t.Parallel()
	d := mockedDevice("GPU-a", 5, 10)
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{}, nvml.ERROR_ARGUMENT_VERSION_MISMATCH
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Used: 6, Total: 10}, nvml.SUCCESS }
	if r := mustOpen(t, mocked([]*mock.Device{d})).Read(); r.Reason != "" || len(r.GPUs) != 1 || r.GPUs[0].Used != 6 {
		t.Errorf("%+v", r)
	}
}

func TestEveryResultOfNVMLHasItsError(t *testing.T) {
	t.Parallel()
	for result, want := range map[nvml.Return]error{
		nvml.SUCCESS: nil, nvml.ERROR_UNINITIALIZED: errGone, nvml.ERROR_DRIVER_NOT_LOADED: errGone,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: ErrMismatch, nvml.ERROR_LIBRARY_NOT_FOUND: ErrNoLibrary,
		nvml.ERROR_NO_PERMISSION: ErrNoPermission, nvml.ERROR_NOT_SUPPORTED: errNotSupported,
		nvml.ERROR_FUNCTION_NOT_FOUND: errNoCall, nvml.ERROR_NOT_FOUND: errNotFound,
		nvml.ERROR_GPU_IS_LOST: errLost, nvml.ERROR_RESET_REQUIRED: errReset,
	} {
		if got := failure(result); !errors.Is(got, want) {
			t.Errorf("%d: %v, want %v", int32(result), got, want)
		}
	}
	if got := failure(nvml.ERROR_UNKNOWN); got == nil || got.Error() != "NVML's error 999 (its number in nvml.h)" {
		t.Errorf("%v", got)
	}
}
