// Package query asks Prometheus and Pyroscope for the data that the agents of a fleet have sent
// there.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/growth"
)

// A Server is where questions go, and as whom.
type Server struct {
	// Name of the server, for errors: "Prometheus".
	Name string
	// URL of it, with a path where it is behind a proxy.
	URL string
	// Tenant is X-Scope-OrgID; empty: none.
	Tenant string
	// User and PasswordFile are for basic authentication, TokenFile for a bearer token.
	User, PasswordFile, TokenFile string
}

const (
	// timeout of a question, the answer read.
	timeout = 2 * time.Minute
	// maxAnswerBytes bounds an answer. An answer of Prometheus on 4,096 ranks has 6 MB.
	maxAnswerBytes = 64 << 20
	maxErrorBytes  = 300 // of an answer, in an error
)

// client follows no redirect, which might lead a secret elsewhere.
var client = &http.Client{
	Timeout: timeout,
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// Check returns the fault of the address or the files of secrets; nil: there is none.
func (s Server) Check() error {
	u, err := push.ParseURL(s.URL, "http://HOST:PORT")
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.Name, err)
	case (s.User == "") != (s.PasswordFile == ""):
		return errors.New("--user and --password-file: give both, or none")
	case s.User != "" && s.TokenFile != "":
		return errors.New("--user and --token-file: give one of them")
	case (s.User != "" || s.TokenFile != "") && !push.KeepsSecrets(u):
		return fmt.Errorf("the password or the token for %s would go over plain http (write "+
			"https://...; http is for this machine alone)", s.Name)
	}
	return nil
}

// post sends a body to a path below the URL and returns the answer.
func (s Server) post(ctx context.Context, path, contentType string, body []byte) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimRight(s.URL, "/")+path, strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.Name, err)
	}
	request.Header.Set("Content-Type", contentType)
	if err := s.authorize(request); err != nil {
		return nil, err
	}

	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", s.Name, err)
	}
	defer answer.Body.Close()

	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of %s: %w", s.Name, err)
	case answer.StatusCode != http.StatusOK:
		return nil, s.refusal(answer, data)
	case len(data) > maxAnswerBytes:
		return nil, fmt.Errorf("the answer of %s is larger than %d MiB", s.Name, maxAnswerBytes>>20)
	}
	return data, nil
}

// authorize adds the tenant and the secret of a request.
func (s Server) authorize(request *http.Request) error {
	if s.Tenant != "" {
		request.Header.Set("X-Scope-OrgID", s.Tenant)
	}
	switch {
	case s.TokenFile != "":
		token, err := push.ReadSecret(s.TokenFile)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	case s.PasswordFile != "":
		password, err := push.ReadSecret(s.PasswordFile)
		if err != nil {
			return err
		}
		request.SetBasicAuth(s.User, password)
	}
	return nil
}

// refusal is an error that says why a server does not answer, in its own words where it has any.
func (s Server) refusal(answer *http.Response, data []byte) error {
	var fields struct{ Error, Message string } // of Prometheus, and of Connect
	_ = json.Unmarshal(data, &fields)
	text := fields.Error + fields.Message
	if text == "" {
		text = strings.Join(strings.Fields(string(data[:min(len(data), maxErrorBytes)])), " ")
	}
	text = growth.Truncate(growth.Printable(text), maxErrorBytes)

	remedy := ""
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		remedy = " (give --user and --password-file, or --token-file)"
	case http.StatusNotFound:
		remedy = fmt.Sprintf(" (is it %s?)", s.Name)
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		text = "it leads elsewhere: " +
			growth.Truncate(growth.Printable(answer.Header.Get("Location")), maxErrorBytes)
		remedy = " (give that URL)"
	}
	return fmt.Errorf("%s answers %s: %s%s", s.Name, growth.Printable(answer.Status), text, remedy)
}
