package tracertest

import (
	"strings"
	"testing"
	"time"
)

// Must returns a function that returns the value of a call, or fails the test with its error:
//
//	maps := tracertest.Must(p.Maps())(t)
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return value
	}
}

// NoError fails the test with an error, unless that is nil. The verifier's log is whole.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatalf("%+v", err)
	}
}

// MustSay checks that a text has all words. where names the text.
func MustSay(t testing.TB, where, text string, words ...string) {
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Helper()
			t.Errorf("%s does not say %q:\n%s", where, word, text)
		}
	}
}

// Eventually waits until something is true. It gives up after a time that is reached only where
// something hangs, however busy the machine is.
func Eventually(t testing.TB, what string, isTrue func() bool) {
	t.Helper()
	const guard = 10 * time.Minute
	for deadline := time.Now().Add(guard); !isTrue(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
