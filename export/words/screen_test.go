package words

import (
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
)

func TestHeadroom(t *testing.T) {
	for of, want := range map[string]string{
		growth.LimitMachine:      "3.00 GiB of headroom in the machine",
		growth.LimitCgroup:       "3.00 GiB of headroom in the cgroup",
		growth.LimitHigh:         "3.00 GiB of headroom below the cgroup's memory.high",
		growth.LimitAddressSpace: "3.00 GiB of headroom below the process's RLIMIT_AS",
		growth.LimitGiven:        "3.00 GiB of headroom below the limit given by --limit",
	} {
		if got := Headroom(summary.Limit{Of: of, HeadroomBytes: 3 << 30}); got != want {
			t.Errorf("%s: %q, want %q", of, got, want)
		}
	}
}
