package main

import (
	"fmt"
	"regexp"
)

// A version is the version of the release. Debian and RPM sort a version with ~ before the same
// without it, and a version with + after it. PEP 440 has forms of its own.
type version struct {
	text   string // 0.1.0, 0.1.0-rc1, 0.1.0-3-gHASH, 0.1.0-dev.HASH
	debian string // 0.1.0, 0.1.0~rc1, 0.1.0+3.gHASH, 0.1.0~dev.HASH; of RPM, too
	wheel  string // 0.1.0, 0.1.0rc1, 0.1.0.post3+gHASH, 0.1.0.dev0+HASH
}

// described matches the output of `git describe` for a commit, or its replacement without a tag.
var described = regexp.MustCompile(
	`^(\d+\.\d+\.\d+)(?:-(rc\d+)|-dev\.([0-9a-f]+))?(?:-(\d+)-(g[0-9a-f]+))?$`)

func (r *release) setVersion(text string) error {
	m := described.FindStringSubmatch(text)
	if m == nil {
		return fmt.Errorf("version %q is none of git describe (such as 0.1.0 or 0.1.0-rc1)", text)
	}
	base, candidate, untagged, commits, hash := m[1], m[2], m[3], m[4], m[5]

	v := version{text: text, debian: base, wheel: base}
	switch {
	case untagged != "":
		v.debian += "~dev." + untagged
		v.wheel += ".dev0+" + untagged
	case candidate != "":
		v.debian += "~" + candidate
		v.wheel += candidate
	}
	if commits != "" {
		v.debian += "+" + commits + "." + hash
		v.wheel += ".post" + commits + "+" + hash
	}
	r.version = v
	return nil
}
