package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/fleet/socket"
	"github.com/allocscope/allocscope/growth"
)

// ErrNoAgent means that no agent listens on a socket.
var ErrNoAgent = errors.New("no agent listens there")

const (
	clientTimeout = time.Minute
	// maxAnswerBytes bounds a status, which has some hundred bytes a process.
	maxAnswerBytes = 4 << 20
)

// A Client asks the agent that listens on a socket.
type Client struct{ http http.Client }

// NewClient returns a client of a socket. It talks to an agent of root, or of this user. For root it
// talks to the user whose folder the socket is in as well, for example the user of the systemd unit.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, ErrNoAgent
		}
		if err != nil {
			return nil, err
		}

		uid, err := socket.PeerOf(conn.(*net.UnixConn))
		if err == nil && uid != 0 && int(uid) != os.Geteuid() &&
			(os.Geteuid() != 0 || !ownsFolder(uid, path)) {
			err = fmt.Errorf("user %d listens there, not root", uid)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}

	return &Client{http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
		Timeout:   clientTimeout,
	}}
}

// ownsFolder reports whether the folder of a file belongs to a user, and nobody else may write it.
func ownsFolder(uid uint32, path string) bool {
	info, err := os.Stat(filepath.Dir(path))
	return err == nil && info.Sys().(*syscall.Stat_t).Uid == uid && info.Mode()&0o022 == 0
}

// Trace asks for a trace.
func (c *Client) Trace(ctx context.Context, r Request) (started Answer, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return started, err
	}
	err = c.ask(ctx, http.MethodPost, "/trace", body, &started)
	return started, err
}

// Status asks for the status.
func (c *Client) Status(ctx context.Context) (s *Status, err error) {
	err = c.ask(ctx, http.MethodGet, "/status", nil, &s)
	return s, err
}

// ask sends a request, and decodes its answer. A refusal is an error with the reason.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}

	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		reason := growth.Printable(strings.TrimSpace(string(text)))
		return errors.New(growth.Truncate(reason, maxReasonBytes))
	}
	return json.Unmarshal(text, into)
}
