package flagvalue

import (
	"errors"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

func TestFailOn(t *testing.T) {
	var wanted *FailOnError
	for _, test := range []struct {
		on    FailOn
		class growth.Class
		fails bool
	}{
		{"", growth.ClassLeak, false},
		{"leak", growth.ClassLeak, true},
		{"leak", growth.ClassSuspected, false},
		{"leak", growth.ClassGrowing, false},
		{"suspected", growth.ClassLeak, true},
		{"suspected", growth.ClassSuspected, true},
		{"suspected", growth.ClassGrowing, false},
	} {
		if err := test.on.Check(Outcome{"the verdict", test.class}); errors.As(err,
			&wanted) != test.fails || (err != nil) != test.fails {
			t.Errorf("--fail-on %q, %s: %v", test.on, test.class, err)
		}
	}
}
