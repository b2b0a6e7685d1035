package units

import "github.com/allocscope/allocscope/growth"

// maxNameBytes bounds names for people: the target chooses its own names.
const maxNameBytes = 300

// Name makes a name of the target fit for people: printable, and truncated after 300 bytes.
func Name(name string) string {
	return growth.Truncate(growth.Printable(name), maxNameBytes)
}
