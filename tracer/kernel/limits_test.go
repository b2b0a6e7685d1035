package kernel

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
)

func TestLimits(t *testing.T) {
	enough := limits{
		openFiles: 134, areOpen: 18, addressSpace: unix.RLIM_INFINITY, cgroup: growth.Unknown,
		cpus: 8,
	}
	few, inherited, narrow, small := enough, enough, enough, enough
	few.openFiles, inherited.areOpen = 80, 26
	narrow.addressSpace, small.cgroup = 500<<20, 64<<20
	for _, c := range []struct {
		name   string
		limits limits
		says   []string // empty: no error
	}{
		{"enough", enough, nil},
		{"open files", few, []string{"open files is 80", "needs 134", "ulimit -n 4096"}},
		{"open already", inherited, []string{"open files is 134", "needs 142"}},
		{"address space", narrow, []string{"address space is 500 MiB", "needs 2048 MiB", "ulimit -v"}},
		{"cgroup", small, []string{"cgroup is 64 MiB", "needs 192 MiB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.limits.check()
			if err == nil != (c.says == nil) {
				t.Fatalf("%+v: %v", c.limits, err)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%v lacks %q", err, text)
				}
			}
		})
	}

	if l := ownLimits(); l.openFiles < 64 || l.cpus < 1 || l.check() != nil {
		t.Errorf("own limits are %+v: %v", l, l.check())
	}
}
