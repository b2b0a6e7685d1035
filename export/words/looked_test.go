package words

import (
	"testing"

	"github.com/allocscope/allocscope/export"
)

func TestPagesThatWereNotLookedAtAreToldWhereItMatters(t *testing.T) {
	for share, want := range map[float64]string{0: "", 0.004: "0.4 %", 0.12: "12 %", 0.99: "99 %", 0.997: "", 1: ""} {
		if got := Looked(export.Resident{Looked: share}); got != want {
			t.Errorf("%g is %q, want %q", share, got, want)
		}
	}
}
