package flagvalue

import (
	"errors"
	"testing"

	"github.com/allocscope/allocscope/growth/verdict"
)

func TestFailOn(t *testing.T) {
	var wanted *FailOnError
	for _, test := range []struct {
		on    FailOn
		class verdict.Class
		fails bool
	}{
		{"", verdict.ClassLeak, false},
		{"leak", verdict.ClassLeak, true},
		{"leak", verdict.ClassSuspected, false},
		{"leak", verdict.ClassGrowing, false},
		{"suspected", verdict.ClassLeak, true},
		{"suspected", verdict.ClassSuspected, true},
		{"suspected", verdict.ClassGrowing, false},
	} {
		if err := test.on.Check(Outcome{"the verdict", test.class}); errors.As(err,
			&wanted) != test.fails || (err != nil) != test.fails {
			t.Errorf("--fail-on %q, %s: %v", test.on, test.class, err)
		}
	}
}
