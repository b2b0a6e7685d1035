package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// minTokenBytes keeps a token from being guessed.
	minTokenBytes = 16
	maxTokenBytes = 4 << 10
)

// authorize reports whether a request has the token of the file, which is read each time: it may have
// been replaced. It has answered the others.
func authorize(w http.ResponseWriter, r *http.Request, tokenFile string) bool {
	if tokenFile == "" {
		refuse(w, http.StatusForbidden, errors.New("traces are not started from here: the agent has "+
			"no token file"))
		return false
	}
	token, err := readToken(tokenFile)
	if err != nil {
		refuse(w, http.StatusForbidden, fmt.Errorf("token file: %w", err))
		return false
	}

	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256(token), sha256.Sum256([]byte(given))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="allocscope"`)
		refuse(w, http.StatusUnauthorized, errors.New("the request has not the right bearer token"))
		return false
	}
	return true
}

// readToken reads the token. Only its owner may be able to read the file: root, or this user. Errors
// do not name it.
func readToken(path string) ([]byte, error) {
	// Opening a pipe must not wait for a writer.
	file, err := os.OpenFile(path, unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return nil, withoutPath(err)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case owner != 0 && owner != os.Geteuid():
		return nil, fmt.Errorf("it belongs to user %d (chown it to root)", owner)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("others may use it, by its mode %04o (chmod it to 0600)",
			info.Mode().Perm())
	}

	text, err := io.ReadAll(io.LimitReader(file, maxTokenBytes+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	token := bytes.TrimSpace(text)
	if len(token) < minTokenBytes || len(text) > maxTokenBytes {
		return nil, fmt.Errorf("a token has %d to %d bytes", minTokenBytes, maxTokenBytes)
	}
	return token, nil
}

// withoutPath returns the cause of an error of a file.
func withoutPath(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}
