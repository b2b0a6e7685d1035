package words

import (
	"fmt"
	"testing"
)

// TestStackSites proves that the user's own frame is shown, however far out it is.
func TestStackSites(t *testing.T) {
	stack := []string{"alloc (/lib/libc10.so)"}
	for i := range 20 {
		stack = append(stack, fmt.Sprintf("f%d (/usr/lib/python3/dist-packages/torch/f.py:%d)", i, i+1))
	}
	stack = append(stack, "train (/home/me/train.py:7)", "<module> (/home/me/train.py:9)", "main")

	for most, want := range map[int][]string{
		4: {"alloc (libc10.so)", "...", "train.py:7  train()", "train.py:9  at module level"},
		6: {
			"alloc (libc10.so)", "f.py:1  f0()", "...", "f.py:20  f19()", "train.py:7  train()",
			"train.py:9  at module level",
		},
	} {
		mustBe(t, StackSites(stack, most), want, most)
	}
	if got := StackSites(stack[:2], 6); len(got) != 2 {
		t.Errorf("a short stack: %q", got)
	}
	if got := StackSites(stack[20:], 4); len(got) != 3 || got[1] != "train.py:7  train()" {
		t.Errorf("a near frame: %q", got)
	}
}
