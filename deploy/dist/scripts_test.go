package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runScript runs shell code that calls $SCRIPTS/NAME, where the folders that the scripts change are
// empty, the user allocscope has the number 4242, and the programs of the system say what is asked
// of them. It returns stdout, which has the calls of systemctl, and stderr.
func runScript(t *testing.T, code string) (stdout, stderr string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("it needs root, to mount empty folders")
	}
	scripts, err := filepath.Abs("scripts")
	if err != nil {
		t.Fatal(err)
	}

	programs := t.TempDir()
	for name, text := range map[string]string{
		"systemctl":        `echo "systemctl $*"; exit ${SYSTEMCTL:-0}`,
		"systemd-sysusers": `exit ${SYSUSERS:-0}`,
		"getent":           `echo allocscope:x:4242:4242::/:/bin/false`,
		"userdel":          `[ -z "$USERDEL" ] || { echo "$USERDEL" >&2; exit 8; }; touch /var/lib/userdel-"$1"`,
	} {
		write(t, filepath.Join(programs, name), "#!/bin/sh\n"+text+"\n")
	}

	command := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", `
		for folder in /etc/default /run /var; do
			mount -t tmpfs -o mode=0755 tmpfs $folder
		done
		mkdir -p /run/systemd/system /var/lib /var/spool
		`+code)
	command.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "SCRIPTS="+scripts)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		t.Errorf("%s: %v, %s", code, err, said.String())
	}
	return out.String(), said.String()
}

// TestScripts has a systemd that refuses all, which must not fail the package.
func TestScripts(t *testing.T) {
	for script, want := range map[string]int{
		"postinstall configure": 3, "preremove remove": 2, "postremove remove": 1,
		"postinstall 2": 3, "preremove 0": 2, "preremove 1": 0, "postremove 1": 0,
		"preremove upgrade": 0, "postremove upgrade": 0,
	} {
		_, said := runScript(t, "export SYSTEMCTL=1 SYSUSERS=1; $SCRIPTS/"+script)
		if got := strings.Count(said, "allocscope: "); got != want {
			t.Errorf("%s: %d lines, want %d: %s", script, got, want, said)
		}
		if out, said := runScript(t, "$SCRIPTS/"+script); said != "" {
			t.Errorf("%s says %s%s", script, out, said)
		}
	}
}

// TestPurge removes the service's files, and nothing of others.
func TestPurge(t *testing.T) {
	const service = `
		touch /etc/default/allocscope-agent
		mkdir -p /var/lib/allocscope/traces/1; echo 1 >/var/lib/allocscope/traces/1/summary.json
		chown -R 4242 /var/lib/allocscope
		`
	const end = `
		$SCRIPTS/postremove purge
		find /etc/default /var/lib /var/spool -mindepth 1 | sort`

	for name, c := range map[string]struct{ before, left, says string }{
		"of the service": {left: "/var/lib/userdel-allocscope\n"},
		"of a container": {
			before: "echo 1 >/var/lib/allocscope/traces/other; ",
			left: "/var/lib/allocscope\n/var/lib/allocscope/traces\n" +
				"/var/lib/allocscope/traces/other\n",
			says: "/var/lib/allocscope stays",
		},
		"of root alone": {
			before: "echo 1 >/var/lib/allocscope/traces/1/other; chown -R 0 /var/lib/allocscope; " +
				"rm /var/lib/allocscope/traces/1/summary.json; ",
			left: "/var/lib/allocscope\n/var/lib/allocscope/traces\n/var/lib/allocscope/traces/1\n" +
				"/var/lib/allocscope/traces/1/other\n/var/lib/userdel-allocscope\n",
			says: "/var/lib/allocscope stays",
		},
		"profiles that wait": {
			before: "mkdir /var/spool/allocscope; ",
			left:   "/var/lib/userdel-allocscope\n/var/spool/allocscope\n",
			says:   "/var/spool/allocscope stays",
		},
		"a user with processes": {
			before: "export USERDEL='user allocscope is currently used by process 1'; ",
			says:   "the user allocscope stays: user allocscope is currently used by process 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			left, said := runScript(t, service+c.before+end)
			left = strings.ReplaceAll(left, "systemctl daemon-reload\n", "")
			if left != c.left || !strings.Contains(said, c.says) || (said == "") != (c.says == "") {
				t.Errorf("left:\n%swant:\n%s\nit says %q, want %q", left, c.left, said, c.says)
			}
		})
	}

	left, _ := runScript(t, service+`mkdir -p /var/cache/allocscope /var/cache/allocscope-tables; touch /var/cache/allocscope-tables/1
		$SCRIPTS/postremove upgrade; ls /var/cache
		$SCRIPTS/postremove remove; ls /var/lib/allocscope /var/cache`)
	if left != "allocscope\nallocscope-tables\nsystemctl daemon-reload\n/var/cache:\nallocscope\n\n/var/lib/allocscope:\ntraces\n" {
		t.Errorf("removed, not purged: %s", left)
	}
}
