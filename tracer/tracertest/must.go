package tracertest

import "testing"

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

// NoError fails the test with an error, unless that is nil.
func NoError(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
