package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Why NVML cannot be read at all. The errors are wrapped by an *Absence.
var (
	// ErrNotBuilt: there is no NVML in this build.
	ErrNotBuilt = errors.New("built without cgo: NVML is off")
	// ErrNoLibrary: the dynamic linker finds no libnvidia-ml.so.1.
	ErrNoLibrary = errors.New("there is no libnvidia-ml.so.1")
	// ErrLibrary: there is a library, which cannot be used.
	ErrLibrary = errors.New("libnvidia-ml.so.1 cannot be used")
	// ErrNoDriver: there is a library, but the kernel's driver is not loaded.
	ErrNoDriver = errors.New("the NVIDIA driver is not loaded")
	// ErrMismatch: library and driver are of different versions.
	ErrMismatch = errors.New("libnvidia-ml.so.1 and the NVIDIA driver are of different versions")
	// ErrNoPermission: the driver's devices cannot be opened.
	ErrNoPermission = errors.New("no permission")
)

// An Absence is why NVML cannot be read, and what to do.
type Absence struct {
	Err    error
	Remedy string // empty: there is nothing to remedy, as where there is no GPU
}

func (a *Absence) Error() string {
	if a.Remedy == "" {
		return a.Err.Error()
	}
	return a.Err.Error() + " (" + a.Remedy + ")"
}

func (a *Absence) Unwrap() error { return a.Err }

// absence says what to do about an error of driver.start. The machine's file system is at root.
func absence(err error, root string) *Absence {
	var remedy string
	switch {
	case errors.Is(err, ErrNotBuilt):
		remedy = "install gcc and build with CGO_ENABLED=1"
	case errors.Is(err, ErrNoLibrary) && driverLoaded(root):
		remedy = "install the library of the driver's version, such as Debian's libnvidia-ml1; in a container: " +
			"NVIDIA_DRIVER_CAPABILITIES=utility,compute"
	case (errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrNoDriver)) && !hasGPU(root):
		err = fmt.Errorf("no NVIDIA GPU on this machine: %w", err)
	case errors.Is(err, ErrNoLibrary):
		remedy = "there is an NVIDIA GPU: install its driver"
	case errors.Is(err, ErrNoDriver):
		remedy = "there is an NVIDIA GPU: modprobe nvidia; dmesg says why it does not load"
	case errors.Is(err, ErrMismatch):
		remedy = "the driver was updated: reboot, or load its new modules"
	case errors.Is(err, ErrNoPermission):
		remedy = "run as root; in a container, give it the GPUs' devices"
	default:
		remedy = "see what nvidia-smi says"
	}
	return &Absence{Err: err, Remedy: remedy}
}

// driverLoaded tells whether the kernel has NVIDIA's driver.
func driverLoaded(root string) bool {
	_, err := os.Stat(filepath.Join(root, "proc/driver/nvidia/version"))
	return err == nil
}

// hasGPU tells whether a display controller of NVIDIA is on the PCI bus. https://admin.pci-ids.ucw.cz/read/PC/10de
func hasGPU(root string) bool {
	devices, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	for _, device := range devices {
		vendor, _ := os.ReadFile(filepath.Join(device, "vendor"))
		class, _ := os.ReadFile(filepath.Join(device, "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}
