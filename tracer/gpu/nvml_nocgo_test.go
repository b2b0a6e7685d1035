//go:build !cgo

package gpu

import "testing"

func TestOpenWithoutCgo(t *testing.T) {
	_, err := Open("")
	mustBeUnavailable(t, err, ErrNotBuilt)
}
