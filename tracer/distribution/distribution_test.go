package distribution

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const (
	dpkgStatus = `Package: libjbig0
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Description: JBIG
 Package: indented

Package: libjpeg62-turbo
Architecture: amd64
Multi-Arch: same

Package: ../../../etc/evil
Architecture: amd64

Package: zlib1g
Architecture: amd64
Multi-Arch: same

Package: libpython3.11
Architecture: amd64

Package: libc6
Architecture: amd64
`
	apkInstalled = `P:libcrypto3
o:openssl
F:etc
R:libz.so.1
F:lib
R:libcrypto.so.3
a:0:0:755

P:zlib
F:usr/lib
R:libz.so.1
`
)

// dpkgLists are the files of packages. Some have their lists with an architecture, and some of
// their files at the paths from before /lib was a link to /usr/lib.
var dpkgLists = map[string]string{
	"libjbig0:amd64.list":        "/.\n/usr/lib/x86_64-linux-gnu/libjbig.so.0\n",
	"libjpeg62-turbo:amd64.list": "/.\n/usr/lib/x86_64-linux-gnu/libjpeg.so.62.3.0\n",
	"zlib1g:amd64.list":          "/.\n/lib/x86_64-linux-gnu/libz.so.1.2.13\n",
	"libpython3.11.list":         "/.\n/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0\n",
	"libc6.list":                 "/.\n/lib/x86_64-linux-gnu/libc.so.6\n",
}

func write(t *testing.T, root, path, content string) {
	t.Helper()
	at := filepath.Join(root, path)
	tracertest.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	tracertest.NoError(t, os.WriteFile(at, []byte(content), 0o600))
}

func TestFindDebug(t *testing.T) {
	debian, alpine, fedora := t.TempDir(), t.TempDir(), t.TempDir()
	suse, arch := t.TempDir(), t.TempDir()
	write(t, debian, "var/lib/dpkg/status", dpkgStatus)
	for name, content := range dpkgLists {
		write(t, debian, "var/lib/dpkg/info/"+name, content)
	}
	write(t, alpine, "lib/apk/db/installed", apkInstalled)
	write(t, fedora, "usr/lib/os-release", "NAME=x\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n")
	tracertest.NoError(t, os.MkdirAll(filepath.Join(fedora, "etc"), 0o755))
	link := filepath.Join(fedora, "etc/os-release")
	tracertest.NoError(t, os.Symlink("/usr/lib/os-release", link))
	write(t, suse, "etc/os-release", "ID=opensuse-leap\n")
	write(t, arch, "etc/os-release", "ID=arch\n")

	for _, c := range []struct {
		root, file string
		manager    growth.PackageManager
		name       string
	}{
		{debian, "/usr/lib/x86_64-linux-gnu/libjpeg.so.62.3.0", "apt", "libjpeg62-turbo-dbgsym"},
		{debian, "/lib/x86_64-linux-gnu/libjbig.so.0", "apt", "libjbig0-dbgsym"},
		{debian, "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13", "apt", "zlib1g-dbgsym"},
		{debian, "/usr/lib/x86_64-linux-gnu/libc.so.6", "apt", "libc6-dbg"},
		{debian, "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", "apt", "python3.11-dbg"},
		{debian, "/usr/lib/x86_64-linux-gnu/libjpeg.so.62", "", ""}, // a part of another path
		{debian, "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13 (deleted)", "", ""},
		{debian, "/usr/lib/libother.so", "", ""},
		{debian, "/opt/libjpeg.so.62.3.0", "", ""},
		{debian, "/usr/local/lib/libz.so.1", "", ""},
		{alpine, "/usr/lib/libcrypto.so.3", "apk", "openssl-dbg"},
		{alpine, "/lib/libz.so.1", "apk", "zlib-dbg"},
		{alpine, "/lib/libother.so", "", ""},
		{fedora, "/usr/lib64/libz.so.1", "dnf", ""},
		{fedora, "/app/libz.so.1", "", ""},
		{suse, "/usr/lib64/libz.so.1", "zypper", ""},
		{arch, "/usr/lib/libz.so.1", "", ""},
		{t.TempDir(), "/usr/lib/libz.so.1", "", ""},
	} {
		want := growth.DebugPackage{Manager: c.manager, Name: c.name}
		if got := FindDebug(c.root, c.file); got != want {
			t.Errorf("%s: %+v, want %+v", c.file, got, want)
		}
	}
}

// TestFindDebugHere agrees with dpkg about the libraries of this machine.
func TestFindDebugHere(t *testing.T) {
	for _, library := range []string{"libz.so.1", "libstdc++.so.6"} {
		links := tracertest.Must(filepath.Glob("/usr/lib/*-linux-gnu/" + library))(t)
		file := tracertest.Must(filepath.EvalSymlinks(links[0]))(t)
		owner, err := exec.Command("dpkg", "-S", file).Output()
		if err != nil { // it has the path from before /lib was a link
			command := exec.Command("dpkg", "-S", strings.TrimPrefix(file, "/usr"))
			owner = tracertest.Must(command.Output())(t)
		}

		name, _, _ := strings.Cut(string(owner), ":")
		if got := FindDebug("/", file); got.Manager != growth.ManagerApt ||
			!strings.HasPrefix(got.Name, name+"-dbg") {
			t.Errorf("%s: %+v, and dpkg says %s", file, got, owner)
		}
	}
}

// TestFindDebugHostile: files of other types are not opened, nor files that links lead to outside.
func TestFindDebugHostile(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write(t, outside, "evil.list", "/.\n/usr/lib/libevil.so\n")
	write(t, root, "var/lib/dpkg/status", "Package: ../../../.."+outside+
		"/evil\nArchitecture: all\nPackage: link\nArchitecture: x/../y\nArchitecture: all\n"+
		strings.Repeat("x", 2<<20))
	info := filepath.Join(root, "var/lib/dpkg/info")
	tracertest.NoError(t, os.MkdirAll(info, 0o755))
	tracertest.NoError(t, os.Symlink(outside+"/evil.list", filepath.Join(info, "link.list")))
	tracertest.NoError(t, os.MkdirAll(filepath.Join(root, "lib/apk/db"), 0o755))
	tracertest.NoError(t, unix.Mkfifo(filepath.Join(root, "lib/apk/db/installed"), 0o600))

	if got := FindDebug(root, "/usr/lib/libevil.so"); got != (growth.DebugPackage{}) {
		t.Errorf("found %+v", got)
	}
}
