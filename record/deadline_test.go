package record

import (
	"testing"
	"time"
)

func TestExtend(t *testing.T) {
	for name, c := range map[string]struct {
		options    Options
		began      time.Duration
		end, later time.Duration
	}{
		"without an end": {Options{}, 0, 0, 0},
		"five minutes at least": {
			Options{Duration: 4 * time.Minute}, 0, 4 * time.Minute, 14 * time.Minute,
		},
		"half of a long one": {
			Options{Duration: time.Hour}, 0, time.Hour, 2 * time.Hour,
		},
		"after an earlier trace": {
			Options{Duration: 4 * time.Minute}, time.Hour, 64 * time.Minute, 74 * time.Minute,
		},
		"until settled": {
			Options{Duration: 5 * time.Minute, UntilSettled: time.Hour},
			0, time.Hour, 70 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var end Deadline
			end.set(c.began, &c.options)
			if end.At() != c.end {
				t.Errorf("ends at %s, want %s", end.At(), c.end)
			}
			end.Extend()
			end.Extend()
			if end.At() != c.later {
				t.Errorf("extended twice it ends at %s, want %s", end.At(), c.later)
			}
		})
	}
}
