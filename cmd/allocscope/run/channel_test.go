package run

import (
	"slices"
	"testing"
)

// The program that sudo starts as root is the tracer part, whatever the user's side asks for.
func TestMissionRestrict(t *testing.T) {
	m := tracerRequest{
		Arguments: []string{"allocscope-starter", TracerName, "--", "true"},
		Environment: []string{
			"LD_PRELOAD=/tmp/evil.so", "ALLOCSCOPE_OUTPUT=out", "TERM=xterm", "TERMINFO=/tmp", "PATH=/",
		},
	}
	must(t, m.restrict())
	if want := []string{"allocscope", TracerName, "--", "true"}; !slices.Equal(m.Arguments, want) {
		t.Errorf("arguments %q, want %q", m.Arguments, want)
	}
	if want := []string{"ALLOCSCOPE_OUTPUT=out", "TERM=xterm"}; !slices.Equal(m.Environment, want) {
		t.Errorf("environment %q, want %q", m.Environment, want)
	}

	for _, arguments := range [][]string{nil, {TracerName}, {"allocscope", "trace", TracerName}} {
		if (&tracerRequest{Arguments: arguments}).restrict() == nil {
			t.Errorf("%q is not refused", arguments)
		}
	}
}
