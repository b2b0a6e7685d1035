package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func startMarker(t *testing.T) *marker {
	t.Helper()
	m := newMarker()
	t.Cleanup(m.close)
	return m
}

// mustMark waits for marks and wants these and no others, with the times at which they came.
func mustMark(t *testing.T, m *marker, since time.Time, want ...string) {
	t.Helper()
	var got []string
	eventually(t, fmt.Sprintf("%q are marked", want), func() bool {
		for _, mark := range m.take() {
			got = append(got, mark.Text)
			if mark.At.Before(since) || mark.At.After(time.Now()) {
				t.Errorf("mark %q is of %s, want between %s and now", mark.Text, mark.At, since)
			}
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("marks %q, want %q", got, want)
	}
}

func TestOfAFloodOfMarksTheFirstAreKeptAndTheOthersCounted(t *testing.T) {
	const flood = 100_000
	m, path := startMarker(t), filepath.Join(t.TempDir(), "log")
	appendTo(t, path, "")
	if err := m.follow(path); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var text strings.Builder
	for i := range flood {
		fmt.Fprintf(&text, "allocscope: mark %d %s\n", i, strings.Repeat("x", 180))
	}
	appendTo(t, path, text.String())
	eventually(t, "the flood has passed", func() bool { return m.dropped() == flood-mostMarks })
	marks := m.take()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(marks) != mostMarks || !strings.HasPrefix(marks[mostMarks-1].Text, fmt.Sprintf("mark %d ", mostMarks-1)) {
		t.Errorf("%d marks", len(marks))
	}
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 8<<20 {
		t.Errorf("%d bytes are kept", kept)
	}
	if m.add("one more", time.Now()) || len(m.take()) != 0 || m.dropped() != flood-mostMarks+1 {
		t.Error("taking the marks makes room for others")
	}
}

// appendTo writes to the end of a file, which it makes if it is not there.
func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
