package record

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allocscope/allocscope/export/summary"
)

// A trace reports its result early, and then once a minute.
func TestResults(t *testing.T) {
	dir, _ := createFolder(t)
	var at []int
	synctest.Test(t, func(t *testing.T) {
		d := days{length: 5*time.Minute + 5*time.Second, started: time.Now(), marks: &Marks{}}
		r := d.newRecorder(t, dir)
		r.report = func(e Event) {
			if soFar, ok := e.(ResultSoFar); ok {
				at = append(at, int(soFar.Summary.DurationS))
				if s := soFar.Summary; s.Ended != summary.EndedRunning || s.Files["report"] != "" {
					t.Errorf("ended %q, files %v", s.Ended, s.Files)
				}
			}
		}
		r.results.costs.Burst = time.Hour // whatever they cost here
		ctx, cancel := context.WithTimeout(t.Context(), d.length)
		defer cancel()
		if _, err := r.Record(ctx); err != nil {
			t.Error(err)
		}
		r.oom.close()
	})
	if want := []int{5, 10, 20, 40, 80, 140, 200, 260}; !slices.Equal(at, want) {
		t.Errorf("results after %v s, want %v", at, want)
	}
}
