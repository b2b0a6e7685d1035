//go:build !cgo

package gpu

import "testing"

func TestABuildWithoutCgoSaysSo(t *testing.T) {
	_, err := Open("")
	mustBeAbsent(t, err, ErrNotBuilt)
}
