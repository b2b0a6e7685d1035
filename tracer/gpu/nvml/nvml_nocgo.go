//go:build !cgo

package nvml

// IsBuilt reports whether this build can load NVML.
const IsBuilt = false

// noDriver is the driver of a build without cgo, which cannot load NVML.
type noDriver struct{ driver }

func newDriver(string) driver { return noDriver{} }

func (noDriver) start() error { return ErrNotBuilt }
