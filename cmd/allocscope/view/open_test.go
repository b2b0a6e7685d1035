package view

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestTunnel(t *testing.T) {
	at := func(address string) *net.TCPAddr {
		resolved := tracertest.Must(net.ResolveTCPAddr("tcp", address))(t)
		return resolved
	}

	for _, c := range []struct{ connection, address, want string }{
		{"", "127.0.0.1:8080", ""},
		{
			"203.0.113.7 50000 198.51.100.9 22", "127.0.0.1:34567",
			"ssh -L 34567:127.0.0.1:34567 198.51.100.9, then open http://127.0.0.1:34567/",
		},
		{
			"fe80::1%eth0 50000 fe80::2%eth0 2222", "[::1]:80",
			"ssh -p 2222 -L 80:[::1]:80 fe80::2, then open http://127.0.0.1:80/",
		},
		{
			"203.0.113.7 50000 198.51.100.9 22", "0.0.0.0:80",
			"ssh -L 80:127.0.0.1:80 198.51.100.9, then",
		},
		{"203.0.113.7 50000 $(reboot) 22", "127.0.0.1:80", ""},
		{"203.0.113.7 50000 198.51.100.9 22;reboot", "127.0.0.1:80", ""},
		{"one two three", "127.0.0.1:80", ""},
	} {
		got := Tunnel(at(c.address), func(string) string { return c.connection })
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q at %s: %q, want %q", c.connection, c.address, got, c.want)
		}
	}
}

// browser makes a browser that writes who runs it, and the page, into a file.
func browser(t *testing.T) (path, seen string) {
	t.Helper()
	dir := tracertest.Must(os.MkdirTemp("", "browser-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))

	path, seen = filepath.Join(dir, "browser"), filepath.Join(dir, "seen")
	script := "#!/bin/sh\necho \"$(id -u) $HOME $*\" > " + seen + ".new\nmv " + seen + ".new " + seen
	must(t, os.WriteFile(path, []byte(script), 0o755))
	return path, seen
}

func awaitText(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	tracertest.Eventually(t, path+" is written", func() (isWritten bool) {
		var err error
		text, err = os.ReadFile(path)
		return err == nil
	})
	return strings.TrimSpace(string(text))
}

func TestOpenBrowser(t *testing.T) {
	const url = "http://127.0.0.1:1234/"
	nobody := folder.Owner{UID: 65534, GID: 65534}

	path, seen := browser(t)
	t.Setenv("BROWSER", "/there/is/none:"+path+" --new %s --last")
	must(t, OpenBrowser(t.Context(), url, nobody))
	want := "65534 /nonexistent --new " + url + " --last"
	if got := awaitText(t, seen); got != want {
		t.Errorf("the browser runs as %q, want %q", got, want)
	}

	path, seen = browser(t)
	t.Setenv("BROWSER", path)
	must(t, OpenBrowser(t.Context(), url, nobody))
	if got := awaitText(t, seen); !strings.HasSuffix(got, " "+url) {
		t.Errorf("the browser gets %q", got)
	}
}

func TestOpenBrowserRefusal(t *testing.T) {
	path, seen := browser(t)
	t.Setenv("BROWSER", path)
	err := OpenBrowser(t.Context(), "http://127.0.0.1:1/", folder.Owner{})
	if err == nil || !strings.Contains(err.Error(), "there is no user behind root") ||
		!strings.Contains(err.Error(), "open the address yourself") {
		t.Errorf("as root: %v", err)
	}
	if _, err := os.Stat(seen); err == nil {
		t.Error("root has run a browser")
	}

	nobody := folder.Owner{UID: 65534, GID: 65534}
	t.Setenv("BROWSER", "")
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	err = OpenBrowser(t.Context(), "http://127.0.0.1:1/", nobody)
	if err == nil || !strings.Contains(err.Error(), "there is no display here") {
		t.Errorf("without a display: %v", err)
	}

	t.Setenv("BROWSER", "/there/is/none")
	if err := OpenBrowser(t.Context(), "http://127.0.0.1:1/", nobody); err == nil {
		t.Error("a browser that is none: no error")
	}
}
