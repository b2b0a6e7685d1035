package push

// ReadSecret reads a password or a token, for those who ask the same servers. A file that others than
// its owner can read is an error, and so is one that belongs neither to root nor to the current user.
func ReadSecret(path string) (string, error) { return readSecret(path) }
