package main

import "testing"

// TestHeldFaults has calls that attach to a path, and one that attaches to a held file.
func TestHeldFaults(t *testing.T) {
	for text, count := range map[string]int{
		`func a(held hostile.HeldPath) { link.OpenExecutable(held.String()) }`:                  0,
		`func a(path string) { link.OpenExecutable(path) }`:                                     1,
		`func a(held fmt.Stringer) { link.OpenExecutable(held.String()) }`:                      1,
		`func a(held hostile.HeldPath) { other := "/x"; link.OpenExecutable(other) }`:           1,
		`func a(p Producer) { link.OpenExecutable(p.Path.String()) }`:                           1,
		`var a, _ = link.OpenExecutable("/bin/su")`:                                             1,
		`func a(held hostile.HeldPath) { open := link.OpenExecutable; open("x"); open("y") }`:   1,
		`func a() { func(p string) { link.OpenExecutable(p) }("x"); link.OpenExecutable("y") }`: 2,
	} {
		faults, err := heldFaults([]source{{"a/b.go", "package a\n" + text}})
		if err != nil || len(faults) != count {
			t.Errorf("%s: %q, %v, want %d", text, faults, err, count)
		}
		if faults, err := heldFaults([]source{{"a/b_test.go", "package a\n" + text}}); len(faults) > 0 {
			t.Errorf("of a test: %q, %v", faults, err)
		}
	}
}
