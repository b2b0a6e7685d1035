package words

import "github.com/allocscope/allocscope/export"

// allLooked is the share of pages from which on all were looked at, for people.
const allLooked = 0.995

// Looked is the share of the pages of a process that was looked at: "12 %". Empty: all were, or it is not known.
func Looked(p export.Resident) string {
	if p.Looked <= 0 || p.Looked >= allLooked {
		return ""
	}
	return Percent(p.Looked)
}
