//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The file that the dynamic linker looks for.
const defaultLibrary = "libnvidia-ml.so.1"

// loaded is the library of this program, which stays.
var loaded struct {
	sync.Mutex
	path  string
	file  *binding
	calls nvml.Interface
}

// library is NVML as go-nvml calls it. Each name is looked up before it is called. go-nvml's text for a result is not asked for:
// it is a call of the library as well, and not of one of those that must be there.
type library struct {
	path  string
	calls nvml.Interface
	has   func(name string) bool // known once there are calls
}

func newDriver(path string) driver {
	if path == "" {
		path = defaultLibrary
	}
	return &library{path: path}
}

// load maps the library.
func (l *library) load() error {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.file == nil {
		file, err := bind(l.path)
		if err != nil {
			return err
		}
		loaded.path, loaded.file, loaded.calls = l.path, file, nvml.New(nvml.WithLibraryPath(l.path))
	}
	if loaded.path != l.path {
		return fmt.Errorf("%w: %s is loaded already", ErrLibrary, printable(loaded.path, maxText))
	}
	file, known := loaded.file, make(map[string]bool)
	l.calls = loaded.calls
	l.has = func(name string) bool {
		found, ok := known[name]
		if !ok {
			found = file.has(name)
			known[name] = found
		}
		return found
	}
	return nil
}

// hasAny tells whether the library has one of the versions of a call, of which go-nvml takes the newest.
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
		return fmt.Errorf("%w: it is not NVIDIA's: it has no nvmlInit or no nvmlShutdown", ErrLibrary)
	}
	err := failure(l.calls.Init())
	if errors.Is(err, errGone) {
		return ErrNoDriver
	}
	return err
}

// stop ends what start began; whether NVML minds is of no use to know.
func (l *library) stop() { _ = l.calls.Shutdown() }

func (l *library) version() (string, error) {
	if !l.has("nvmlSystemGetDriverVersion") {
		return "", errNoCall
	}
	version, result := l.calls.SystemGetDriverVersion()
	return version, failure(result)
}

func (l *library) count() (int, error) {
	if !l.hasAny("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") {
		return 0, errNoCall
	}
	count, result := l.calls.DeviceGetCount()
	return count, failure(result)
}

func (l *library) device(index int) (device, error) {
	if !l.hasAny("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex") {
		return nil, errNoCall
	}
	handle, result := l.calls.DeviceGetHandleByIndex(index)
	return handleOf{l, handle}, failure(result)
}

// failure is the error for a result; nil: it is a success.
func failure(result nvml.Return) error {
	switch result {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED:
		return errGone
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return ErrMismatch
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return ErrNoLibrary
	case nvml.ERROR_NO_PERMISSION:
		return ErrNoPermission
	case nvml.ERROR_NOT_SUPPORTED:
		return errNotSupported
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return errNoCall
	case nvml.ERROR_NOT_FOUND:
		return errNotFound
	case nvml.ERROR_GPU_IS_LOST:
		return errLost
	case nvml.ERROR_RESET_REQUIRED:
		return errReset
	}
	return fmt.Errorf("NVML's error %d (its number in nvml.h)", int32(result))
}
