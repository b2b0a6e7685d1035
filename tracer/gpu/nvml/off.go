//go:build !cgo

package nvml

// off is NVML where the build has none.
type off struct{ driver }

func newDriver(string) driver { return off{} }

func (off) start() error { return ErrNotBuilt }
