package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// Errors for which NVML is unavailable as a whole, wrapped by *UnavailableError.
var (
	// ErrNotBuilt: this build cannot load NVML.
	ErrNotBuilt = errors.New("this static build has no NVML")
	// ErrNoLibrary: the dynamic linker finds no libnvidia-ml.so.1.
	ErrNoLibrary = errors.New("there is no libnvidia-ml.so.1")
	// ErrLibrary: the library exists and cannot be used.
	ErrLibrary = errors.New("libnvidia-ml.so.1 cannot be used")
	// ErrNoDriver: the library exists, but the kernel driver is not loaded.
	ErrNoDriver = errors.New("the NVIDIA driver is not loaded")
	// ErrMismatch: library and driver are of different versions.
	ErrMismatch = errors.New("libnvidia-ml.so.1 and the NVIDIA driver are of different versions")
	// ErrNoPermission: the driver's device files cannot be opened.
	ErrNoPermission = errors.New("no permission")
)

// An UnavailableError is the reason why NVML cannot be read, and its remedy.
type UnavailableError struct {
	Err    error
	NVIDIA growth.NVIDIA // the part that the machine has; empty: none
	Remedy string        // empty: there is nothing to fix, as on a machine without a GPU
}

func (u *UnavailableError) Error() string {
	if u.Remedy == "" {
		return u.Err.Error()
	}
	return u.Err.Error() + " (" + u.Remedy + ")"
}

func (u *UnavailableError) Unwrap() error { return u.Err }

// unavailable adds the remedy to an error of driver.start, by the files below root.
func unavailable(err error, root string) *UnavailableError {
	var remedy string
	has := nvidia(root)
	isAbsent := errors.Is(err, ErrNotBuilt) || errors.Is(err, ErrNoLibrary) ||
		errors.Is(err, ErrNoDriver)

	switch {
	case errors.Is(err, ErrNoLibrary) && has == growth.NVIDIADriver:
		remedy = "install the library of the driver's version, such as Debian's libnvidia-ml1; " +
			"in a container: NVIDIA_DRIVER_CAPABILITIES=utility,compute"
	case isAbsent && has == "":
		err = fmt.Errorf("no NVIDIA GPU on this machine: %w", err)
	case errors.Is(err, ErrNotBuilt):
		remedy = "install a build for glibc: .deb, .rpm, .tar.gz without -static, or pip; " +
			"from source: install gcc"
	case errors.Is(err, ErrNoLibrary):
		remedy = "there is an NVIDIA GPU: install its driver"
	case errors.Is(err, ErrNoDriver):
		remedy = "there is an NVIDIA GPU: modprobe nvidia; dmesg shows why it does not load"
	case errors.Is(err, ErrMismatch):
		remedy = "the driver was updated: reboot, or load its new modules"
	case errors.Is(err, ErrNoPermission):
		remedy = "run as root; in a container, give it the GPUs' device files"
	default:
		remedy = "see what nvidia-smi reports"
	}

	return &UnavailableError{Err: err, NVIDIA: has, Remedy: remedy}
}

// nvidia is the part of NVIDIA's that the machine has.
func nvidia(root string) growth.NVIDIA {
	if _, err := os.Stat(filepath.Join(root, "proc/driver/nvidia/version")); err == nil {
		return growth.NVIDIADriver
	}
	if hasGPU(root) {
		return growth.NVIDIAGPU
	}
	return ""
}

// hasGPU reports whether an NVIDIA display controller is on the PCI bus.
// https://admin.pci-ids.ucw.cz/read/PC/10de
func hasGPU(root string) bool {
	devices, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*"))
	for _, device := range devices {
		vendor, _ := os.ReadFile(filepath.Join(device, "vendor"))
		class, _ := os.ReadFile(filepath.Join(device, "class"))
		if strings.TrimSpace(string(vendor)) == "0x10de" &&
			strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}
