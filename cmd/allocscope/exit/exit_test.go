package exit

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestStatusOf(t *testing.T) {
	cause := fs.ErrNotExist
	for _, c := range []struct {
		err   error
		want  Status
		usage bool
	}{
		{nil, 0, false},
		{Usage(nil), 0, false},
		{Refuse(nil), 0, false},
		{cause, 1, false},
		{Refuse(cause), 2, false},
		{Usage(cause), 2, true},
		{Refuse(Usage(cause)), 2, true},
		{Refuse(&Error{Status: Found, Err: cause}), 3, false},
		{fmt.Errorf("trace: %w", &Error{Status: Inconclusive, Err: cause}), 4, false},
		{errors.Join(cause, Refuse(cause)), 2, false},
	} {
		if got := StatusOf(c.err); got != c.want || IsUsage(c.err) != c.usage {
			t.Errorf("%v has status %d, of usage: %t; want %d, %t", c.err, got, IsUsage(c.err),
				c.want, c.usage)
		}
		if c.err != nil && !errors.Is(c.err, cause) {
			t.Errorf("%v hides its cause", c.err)
		}
	}
}

func TestHelp(t *testing.T) {
	want := "  0  done\n  3  a leak, or a rank that stands out, was found (--fail-on)"
	if got := Help(Done, Found); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
