package words

import "testing"

func TestAFrameIsOfPythonOrNativeOrStandsForWhatHasNone(t *testing.T) {
	for frame, want := range map[string]string{
		"step (/src/train.py:40)": "python", "<module> (<string>:1)": "python", "resize (/src/_image.pyx:7)": "python",
		"leak (/src/leak.c:12)": "native", "free (/lib/libc.so.6)": "native", "f(int) (/x.py)": "native", "": "native", "[a": "native",
		"[truncated: more than 127 frames]": "root", "[file: /data/train.bin]": "root",
	} {
		if got := FrameClass(frame); got != want {
			t.Errorf("%q is %s, want %s", frame, got, want)
		}
	}
}
