//go:build !cgo

package nvml

import "testing"

func TestOpenWithoutCgo(t *testing.T) {
	_, err := Open("")
	mustBeUnavailable(t, err, ErrNotBuilt)
}
