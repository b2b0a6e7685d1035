package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/allocscope/allocscope/export/push"
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
		// The error has the path of the file, and the client has not proven who it is.
		refuse(w, http.StatusForbidden, errors.New("the agent cannot use its token file"))
		return false
	}

	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="allocscope"`)
		refuse(w, http.StatusUnauthorized, errors.New("the request has not the right bearer token"))
		return false
	}
	return true
}

// readToken reads the token. Only its owner may be able to read the file: root, or this user.
func readToken(path string) (string, error) {
	text, err := push.ReadSecret(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(text)
	if len(token) < minTokenBytes || len(token) > maxTokenBytes {
		return "", fmt.Errorf("%s: a token has %d to %d bytes", path, minTokenBytes, maxTokenBytes)
	}
	return token, nil
}
