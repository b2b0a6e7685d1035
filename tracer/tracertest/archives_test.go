package tracertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestArchives runs the scripts that set up releases of Debian and Ubuntu, with commands that fetch
// nothing in place of debootstrap and apt.
func TestArchives(t *testing.T) {
	t.Run("a running program keeps the folder that is replaced", testArchivesReplaced)
	t.Run("Ubuntu's keys are fetched", testArchivesUbuntu)
}

// replaceCommands makes scripts find these programs, which are shell scripts, and root's ID.
func replaceCommands(t *testing.T, scripts map[string]string) {
	t.Helper()
	folder := t.TempDir()
	for name, script := range scripts {
		writeScript(t, filepath.Join(folder, name), script)
	}
	writeScript(t, filepath.Join(folder, "id"), "echo 0")
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

func writeScript(t *testing.T, path, script string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte("#!/bin/sh\nset -eu\n"+script+"\n"), 0o755))
}

// anAptGet and anAptConfig answer as in a Debian; the former downloads one package.
const (
	anAptGet = `case "$*" in
		*indextargets*) echo http://deb.example/debian/ ;;
		*download*) : >package.deb ;;
		esac`
	anAptConfig = `case $1 in dump) echo 'Acquire::Retries "1";' ;; esac`
)

func testArchivesReplaced(t *testing.T) {
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	if _, err := os.Stat(keys); err != nil {
		t.Skipf("no %s (apt-get install debian-archive-keyring)", keys)
	}
	replaceCommands(t, map[string]string{
		"apt-get":    anAptGet,
		"apt-config": anAptConfig,
		"wget":       "",
		"debootstrap": `for argument; do
			case $argument in
			--include=*) packages=$(echo "${argument#*=}" | tr , ' ') ;;
			*/trixie.part)
				mkdir -p "$argument/usr/bin" "$argument/var/lib/dpkg/info"
				cp /bin/true "$argument/usr/bin/python3"
				for package in $packages; do : >"$argument/var/lib/dpkg/info/$package.list"; done
				;;
			esac
		done`,
	})
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	root := filepath.Join(cache, "allocscope", "interpreters", "trixie")
	writeScript(t, filepath.Join(root, "usr", "bin", "python3"), "") // without the other packages

	program := exec.Command("sleep", "1000")
	program.Dir = root
	must(t, program.Start())
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()

	out, err := exec.Command("sh", Source("interpreters.sh"), "unusual").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(root, "var")); err != nil {
		t.Fatalf("the folder is not replaced: %s", out)
	}
	kept := filepath.Join("/proc", strconv.Itoa(program.Process.Pid), "cwd", "usr", "bin", "python3")
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the program's folder is gone: %v", err)
	}
}

func testArchivesUbuntu(t *testing.T) {
	replaceCommands(t, map[string]string{
		"apt-get":    anAptGet,
		"apt-config": anAptConfig,
		"dpkg": `keys=$3/usr/share/keyrings
			mkdir -p "$keys" && echo keys >"$keys/ubuntu-archive-keyring.gpg"`,
		"debootstrap": `for argument; do
			case $argument in
			--keyring=*) keys=${argument#*=} ;;
			*/jammy.part) mkdir "$argument" && cp "$keys" "$argument/keys" ;;
			esac
		done`,
	})
	folder := filepath.Join(t.TempDir(), "jammy")
	if out, err := exec.Command(Source("release.sh"), "jammy", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if keys, err := os.ReadFile(filepath.Join(folder, "keys")); string(keys) != "keys\n" {
		t.Errorf("debootstrap gets the keys %q: %v", keys, err)
	}
}
