//go:build !cgo

package nvml

// noDriver is the driver of a build without cgo, which cannot load NVML.
type noDriver struct{ driver }

func newDriver(string) driver { return noDriver{} }

func (noDriver) start() error { return ErrNotBuilt }
