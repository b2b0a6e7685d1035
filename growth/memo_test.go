package growth

import (
	"strconv"
	"testing"
)

func TestNameTest(t *testing.T) {
	asked := make(map[string]int)
	test := nameTest{ask: func(name string) bool {
		asked[name]++
		return name == "malloc"
	}}
	for range 3 {
		if !test.of("malloc") || test.of("main") {
			t.Fatal("a wrong answer")
		}
	}
	if asked["malloc"] != 1 || asked["main"] != 1 {
		t.Errorf("asked %v times, want once each", asked)
	}

	for i := range 2 * maxNames {
		test.of(strconv.Itoa(i))
	}
	if len(test.answers) > maxNames {
		t.Errorf("%d names are kept, want %d at most", len(test.answers), maxNames)
	}
}
