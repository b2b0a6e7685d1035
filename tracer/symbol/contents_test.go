package symbol

import (
	"bytes"
	"os"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestContents looks into this test, which the Go linker has made, and into a program of C.
func TestContents(t *testing.T) {
	texts := []string{"no such text is in any file", "ready"}
	for _, c := range []struct {
		path string
		isGo bool
	}{
		{tracertest.Must(os.Executable())(t), true},
		{tracertest.Build(t, "linkmap.c"), false},
		{tracertest.Build(t, "linkmap.c", "-Wl,--strip-all"), false},
	} {
		opened := tracertest.Must(os.Open(c.path))(t)
		defer opened.Close()
		info := tracertest.Must(opened.Stat())(t)
		file := tracertest.Must(newFile(opened, info.Size()))(t)

		if got := file.IsGo(); got != c.isGo {
			t.Errorf("%s: made by the Go linker: %t, want %t", c.path, got, c.isGo)
		}
		constants := file.Constants()
		for i, text := range texts {
			if got := bytes.Contains(constants, []byte(text)); !c.isGo && got != (i > 0) {
				t.Errorf("%s: %q is a constant: %t", c.path, text, got)
			}
		}
	}
}
