package export

import (
	"os"
	"testing"
)

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestOwnerFromEnvironment(t *testing.T) {
	if o, err := OwnerFromEnvironment(environment(nil)); err != nil || o != current() {
		t.Errorf("without sudo: %v, %v", o, err)
	}
	sudo, err := OwnerFromEnvironment(environment(map[string]string{"SUDO_UID": "1000", "SUDO_GID": "100"}))
	if os.Geteuid() != 0 {
		if err != nil || sudo != current() {
			t.Errorf("not root: %v, %v", sudo, err)
		}
		t.Skip("needs root: others cannot give files away")
	}
	if err != nil || (sudo != Owner{1000, 100}) {
		t.Errorf("with sudo: %v, %v", sudo, err)
	}
	for _, test := range []struct{ uid, gid, want string }{
		{"1000", "", `read SUDO_GID: "" is not a user or group ID`},
		{"", "1000", `read SUDO_UID: ""`},
		{"-1", "100", `read SUDO_UID: "-1"`},
		{"4294967295", "100", `read SUDO_UID: "4294967295"`},
		{"1000", "4294967296", `read SUDO_GID: "4294967296"`},
		{"1000x", "100", `read SUDO_UID: "1000x"`},
	} {
		_, err := OwnerFromEnvironment(environment(map[string]string{"SUDO_UID": test.uid, "SUDO_GID": test.gid}))
		wantError(t, err, test.want, "unset SUDO_UID")
	}
}
