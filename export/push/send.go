package push

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/allocscope/allocscope/growth"
)

const (
	// attemptTimeout bounds one attempt, the answer included.
	attemptTimeout = 30 * time.Second
	maxAnswerBytes = 16 << 10
	maxReasonBytes = 300
)

// newClient trusts the certificates of the system, and follows no redirection: it would carry the
// credentials elsewhere.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxAnswerBytes
	return &http.Client{
		Transport: transport, Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// An answer is a server's answer to a profile. Neither accepted nor refused: it may take it later.
type answer struct {
	accepted, refused bool
	retryAfter        time.Duration // 0: the server does not say
	err               error         // nil: accepted
}

// post sends the body of a request, once.
func (p *Pusher) post(ctx context.Context, body []byte) answer {
	request, err := p.newRequest(ctx, body)
	if err != nil {
		return answer{err: err}
	}

	response, err := p.client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))

	switch status := response.StatusCode; {
	case status == http.StatusOK && err != nil:
		return answer{err: fmt.Errorf("read the answer: %w", err)}
	case status == http.StatusOK && !isMessage(text):
		return answer{err: fmt.Errorf("%s does not answer as Pyroscope does%s", p.endpoint.Host,
			reasonOf(text))}
	case status == http.StatusOK:
		return answer{accepted: true}
	default:
		return answer{
			refused: isRefusal(status), retryAfter: retryAfter(response.Header.Get("Retry-After")),
			err: fmt.Errorf("%s answers %s%s", p.endpoint.Host, statusText(response),
				reasonOf(text)),
		}
	}
}

// newRequest reads the password or the token: it may have changed.
func (p *Pusher) newRequest(ctx context.Context, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint.String(),
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "allocscope")
	if p.options.Tenant != "" {
		request.Header.Set("X-Scope-OrgID", p.options.Tenant)
	}

	if file := cmp.Or(p.options.TokenFile, p.options.PasswordFile); file != "" {
		secret, err := ReadSecret(file)
		if err != nil {
			return nil, err
		}
		if p.options.TokenFile != "" {
			request.Header.Set("Authorization", "Bearer "+secret)
		} else {
			request.SetBasicAuth(p.options.User, secret)
		}
	}

	return request, nil
}

// isMessage is true of a message of Connect in JSON, and false of the page of a proxy.
func isMessage(body []byte) bool {
	var message map[string]json.RawMessage
	return json.Unmarshal(body, &message) == nil
}

// isRefusal is true of answers that the same profile would get again. Others are about the server,
// its limits or who may write to it, which may change.
func isRefusal(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// statusText is the status, and where a redirection that is not followed leads.
func statusText(response *http.Response) string {
	text := strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)
	if at := response.Header.Get("Location"); at != "" {
		text += ", a redirection to " + growth.Printable(growth.Truncate(at, maxReasonBytes))
	}
	return text
}

// reasonOf is the message of an error of Connect, or else the beginning of the body.
func reasonOf(body []byte) string {
	var connect struct{ Message string }
	if json.Unmarshal(body, &connect) == nil && connect.Message != "" {
		body = []byte(connect.Message)
	}
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return ""
	}
	return ": " + growth.Printable(growth.Truncate(string(body), maxReasonBytes))
}

// retryAfter parses the header Retry-After, in seconds or as a date, within its bound.
func retryAfter(header string) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = time.Until(at)
	}
	return min(max(0, wait), longestRetryAfter)
}
