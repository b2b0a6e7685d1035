package words

import (
	"reflect"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
)

// Whatever a summary lacks, its result is written: the stored ones without each of their parts, and
// without the keeper of each, for each reason why there is none.
func TestResultIsTotal(t *testing.T) {
	for _, path := range results(t) {
		for i := range reflect.TypeFor[summary.Summary]().NumField() {
			s := readSummary(t, path)
			reflect.ValueOf(s).Elem().Field(i).SetZero()
			mustSayAll(t, s)
		}

		for reason := range shortReasons {
			s := readSummary(t, path)
			for k := range s.Keepers {
				s.Keepers[k].Paths, s.Keepers[k].Reason = nil, reason
			}
			s.Keepers = append(s.Keepers, summary.Keeper{
				PID: s.Process.PID, Samples: 16, Reason: reason,
			})
			mustSayAll(t, s)

			s.Suspects = append(s.Suspects, s.Suspects...)
			mustSayAll(t, s)
		}
	}
}

func mustSayAll(t *testing.T, s *summary.Summary) {
	t.Helper()
	if lines := ResultOf(s, Place{Dir: "folder"}).Lines(ResultWidth, nil); len(lines) < 2 {
		t.Errorf("%q is no result", lines)
	}
}
