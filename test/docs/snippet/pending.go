package snippet

import "regexp"

// The pages use commands and flags that are being added. Delete this file, and the uses of its
// names, when they are all there.
var (
	positional = regexp.MustCompile(`allocscope trace (PID|"\$[^"]+")`)

	// Pending matches calls that this version refuses.
	Pending = regexp.MustCompile(`allocscope (show|ps|demo|--version|doctor (PID|N))\b|--until-settled|` +
		`--continue\b|trace .*--(limit|name)\b|trace ((PID|N|\d+)\b|"\$[^"]+")|--details\b|` +
		`--color\b|--quiet\b|--verbose\b|--open\b|allocscope (view|report)$`)

	pendingLine = regexp.MustCompile(`(?m)^.*(` + Pending.String() + `).*\n`)
)

// Today replaces new forms of calls by those of this version, or leaves them out.
func Today(code string) string {
	code = positional.ReplaceAllString(code, "allocscope trace --pid $1")
	return pendingLine.ReplaceAllString(code, "")
}
