//go:build !cgo

package nvml

import "testing"

func TestABuildWithoutCgoSaysSo(t *testing.T) {
	_, err := Open("")
	mustBeAbsent(t, err, ErrNotBuilt)
}
