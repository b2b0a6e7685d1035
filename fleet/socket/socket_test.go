package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func at(path string) *net.UnixAddr { return &net.UnixAddr{Net: "unix", Name: path} }

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l := tracertest.Must(Listen(at(path), os.Geteuid()))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestListen(t *testing.T) {
	t.Run("modes", testModes)
	t.Run("taken", testTaken)
	t.Run("left behind", testLeftBehind)
	t.Run("other files", testOtherFiles)
	t.Run("folder is removed", testRemoveFolder)
	t.Run("folders", testFolders)
	t.Run("folder lets users pass", testLetPass)
	t.Run("peer", testPeer)
}

func testModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "socket")
	l := listen(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	tracertest.NoError(t, l.Close())
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
}

func testTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first := listen(t, path)
	if l, err := Listen(at(path), os.Geteuid()); !errors.Is(err, ErrTaken) {
		t.Errorf("second listener: %v, %v", l, err)
	}

	// The first one still answers.
	go func() {
		if conn, err := first.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	conn := tracertest.Must(net.DialUnix("unix", nil, at(path)))(t)
	_ = conn.Close()
}

func testLeftBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	killed := listen(t, path)
	killed.SetUnlinkOnClose(false)
	tracertest.NoError(t, killed.Close())
	listen(t, path)
}

// A wrong path costs no file.
func testOtherFiles(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "file")
	tracertest.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	link, folder := filepath.Join(dir, "link"), filepath.Join(dir, "folder")
	tracertest.NoError(t, errors.Join(os.Symlink(victim, link), os.Mkdir(folder, 0o700)))
	for _, path := range []string{victim, link, folder} {
		if _, err := Listen(at(path), os.Geteuid()); err == nil {
			t.Errorf("listens on %s", path)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}

	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("%q, %v", text, err)
	}
}

func testFolders(t *testing.T) {
	tracertest.NeedsRoot(t)
	const nobody = 65534
	for name, test := range map[string]struct {
		prepare func(path string) error
		mode    os.FileMode // 0: it is refused
		why     string
	}{
		"new":   {func(string) error { return nil }, 0o711, ""},
		"there": {func(path string) error { return os.Mkdir(path, 0o700) }, 0o700, ""},
		"another user's": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o711), os.Chown(path, nobody, -1))
		}, 0, "belongs to UID 65534: it must belong to root or to UID 0"},
		"open to a group": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o730))
		}, 0, "has mode 0730: its owner alone may write it"},
		"a link":  {func(path string) error { return os.Symlink("/run", path) }, 0, "not a directory"},
		"no room": {func(path string) error { return os.WriteFile(path, nil, 0o600) }, 0, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "folder")
			tracertest.NoError(t, test.prepare(path))
			folder, err := openFolder(path)
			if (err == nil) != (test.mode != 0) {
				t.Fatalf("%v", err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), test.why) {
					t.Errorf("%v, want %q", err, test.why)
				}
				return
			}
			defer folder.Close()
			if info, err := folder.Stat(); err != nil || info.Mode().Perm() != test.mode {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// A folder that was there lets the user of a socket pass. Where the socket is this user's, it stays.
func testLetPass(t *testing.T) {
	tracertest.NeedsRoot(t)
	const nobody = 65534
	for _, test := range []struct {
		name      string
		uid       int
		mode, now os.FileMode
	}{
		{"another user's socket", nobody, 0o700, 0o711},
		{"another user's socket, readable folder", nobody, 0o755, 0o755},
		{"own socket", os.Geteuid(), 0o700, 0o700},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "folder")
			tracertest.NoError(t, errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, test.mode)))
			l := tracertest.Must(Listen(at(filepath.Join(folder, "socket")), test.uid))(t)
			defer l.Close()
			if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != test.now {
				t.Errorf("mode %v, want %v: %v", info.Mode(), test.now, err)
			}
		})
	}
}

func testPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l := listen(t, path)
	conn := tracertest.Must(net.DialUnix("unix", nil, at(path)))(t)
	defer conn.Close()
	accepted := tracertest.Must(l.AcceptUnix())(t)
	defer accepted.Close()
	if uid, err := PeerOf(accepted); err != nil || int(uid) != os.Geteuid() {
		t.Errorf("%d, %v", uid, err)
	}
}

func testRemoveFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	isThere := func(name string) bool {
		_, err := os.Lstat(filepath.Join(folder, name))
		return err == nil
	}
	remove := func() {
		t.Helper()
		tracertest.NoError(t, RemoveFolder("unix", folder))
	}

	remove()
	if isThere("") {
		t.Error("made a folder to remove it")
	}

	live, killed := listen(t, filepath.Join(folder, "live")), listen(t, filepath.Join(folder, "killed"))
	killed.SetUnlinkOnClose(false)
	killed.Close()
	remove()
	if !isThere("live") || isThere("killed") {
		t.Errorf("live: %t, killed: %t", isThere("live"), isThere("killed"))
	}

	live.Close()
	remove()
	if isThere("") {
		t.Error("the folder is left")
	}

	// One that starts while another one removes the folder listens in a new one.
	for range 200 {
		var running sync.WaitGroup
		running.Go(func() {
			l, err := Listen(at(filepath.Join(folder, "socket")), os.Geteuid())
			if err != nil {
				t.Error(err)
				return
			}
			l.Close()
		})
		running.Go(remove)
		running.Wait()
	}
}
