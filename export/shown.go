package export

// Printable is a name that the target or a file has chosen, fit for a terminal: printable characters alone, no more than 300 bytes.
func Printable(name string) string { return shown(name) }
