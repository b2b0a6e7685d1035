// Package push sends profiles to Pyroscope, by way of a spool on disk.
package push

import "time"

// Options say where profiles are sent, and how.
type Options struct {
	// URL of the server, with a path where it is behind a proxy.
	URL string
	// Tenant is X-Scope-OrgID; empty: none.
	Tenant string
	// User and PasswordFile are for basic authentication, TokenFile for a bearer token. The files are
	// read when they are needed.
	User, PasswordFile, TokenFile string
	// Labels are added to those of each profile, and win.
	Labels map[string]string
	// Spool is the directory in which profiles wait, and MaxSpoolBytes its size; 0: a default.
	Spool         string
	MaxSpoolBytes int64
	// Jitter is the longest random wait before the first attempt of a profile.
	Jitter time.Duration
}

// Stats are what has become of profiles since the Pusher was opened, but for those that wait: they
// may be older.
type Stats struct {
	Sent, Retried uint64
	// Refused are those that the server will never take, Dropped those for which the spool had no
	// room.
	Refused, Dropped uint64
	// Waiting in the spool, and their size in bytes.
	Waiting      int
	WaitingBytes int64
}
