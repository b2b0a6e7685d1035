package push

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/exporttest"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestFlushFaults(t *testing.T) {
	s := newServer(t)
	s.answer = func(n int, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		switch n {
		case 1:
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 8<<20)) // a huge answer
		case 3: // cut after the request was read
			hijacked, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return false
			}
			_ = hijacked.Close()
		case 4:
			w.Header().Set("Location", "http://elsewhere.example/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		case 5:
			w.WriteHeader(http.StatusUnauthorized)
		case 6: // of something else
			_, _ = io.WriteString(w, "<html>Please log in</html>")
		default:
			return false
		}
		return true
	}

	p := open(t, Options{URL: s.URL + "/behind/a/proxy"})
	p.addTrace(t, onlyTrace(t))
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 3)
	want := Stats{Sent: 3, Retried: 6}
	if got := p.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

type zeros struct{}

func (zeros) Read(to []byte) (int, error) { return len(to), nil }

func TestFlushRefused(t *testing.T) {
	s := newServer(t)
	first := ""
	s.answer = func(_ int, w http.ResponseWriter, _ *http.Request, body []byte) bool {
		if first == "" || strings.Contains(string(body), first) {
			_, first, _ = strings.Cut(string(body), `"ID":"`)
			first, _, _ = strings.Cut(first, `"`)
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"invalid_argument","message":"too\u001b[31m old`+
				strings.Repeat("!", 5000)+`"}`)
			return true
		}
		return false
	}

	p := open(t, Options{URL: s.URL})
	p.addTrace(t, onlyTrace(t))
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 2)
	if got := p.Stats(); got.Sent != 2 || got.Refused != 1 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}

	// The operator moves it back.
	name := first + ".json"
	aside := filepath.Join(p.Directory(), refusedDir, name)
	tracertest.NoError(t, os.Rename(aside, filepath.Join(p.Directory(), name)))
	tracertest.NoError(t, p.Flush(t.Context()))
	got := p.Stats()
	if got.Refused != 2 || !strings.Contains(got.Problem, "400 Bad Request: too?[31m old!") ||
		len(got.Problem) > maxProblemBytes {
		t.Errorf("%+v", got)
	}
}

// A profile that the server never takes, as one above its limit, does not hold up the others.
func TestFlushOneTooLarge(t *testing.T) {
	s := newServer(t)
	var mu sync.Mutex
	first := ""
	s.answer = func(_ int, w http.ResponseWriter, _ *http.Request, body []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if first == "" {
			first = string(body)
		}
		if first == string(body) {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}
		return false
	}

	p := open(t, Options{URL: s.URL})
	p.addTrace(t, onlyTrace(t))
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan error)
	go func() { flushed <- p.Flush(ctx) }()
	waitFor(t, func() bool { return p.Stats().Sent == 2 })
	cancel()
	if err := <-flushed; err == nil {
		t.Error("no error though one waits")
	}
	if got := p.Stats(); got.Waiting != 1 || got.WaitingBytes == 0 {
		t.Errorf("%+v", got)
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// A server that asks for a longer pause than there is time for is not waited for.
func TestFlushNoTime(t *testing.T) {
	s := newServer(t)
	s.answer = func(_ int, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Retry-After", "500")
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	p := open(t, Options{URL: s.URL})
	p.addTrace(t, onlyTrace(t))
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Second)
	defer cancel()
	err := p.Flush(ctx)
	exporttest.WantError(t, err, "503 Service Unavailable")
	if s.n != 1 || p.Stats().Waiting != 3 {
		t.Errorf("%d requests, %+v", s.n, p.Stats())
	}
}

// A server that does not answer is left when the time is up, and gets the same profile later.
func TestFlushSlow(t *testing.T) {
	s := newServer(t)
	release := make(chan struct{})
	s.answer = func(n int, _ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if n > 1 {
			return false
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}
	p := open(t, Options{URL: s.URL})
	p.addTrace(t, onlyTrace(t))
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan error)
	go func() { flushed <- p.Flush(ctx) }()
	waitFor(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.n == 1
	})
	cancel()
	if err := <-flushed; err == nil {
		t.Error("no error though all wait")
	}
	close(release)
	if got := p.Stats(); got.Retried != 0 || got.Waiting != 3 {
		t.Errorf("%+v", got)
	}
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 3)
}

func TestRunSendsWhatComes(t *testing.T) {
	s := newServer(t)
	p := open(t, Options{URL: s.URL, Jitter: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	tr := onlyTrace(t)
	for i := range 3 {
		p.addTrace(t, tr)
		waitFor(t, func() bool { return p.Stats().Sent == uint64(3*(i+1)) })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.once(t, 9)
}

// Profiles that wait at the end of a process are sent by the next one, with their IDs.
func TestRestart(t *testing.T) {
	s := newServer(t)
	spool := filepath.Join(t.TempDir(), "spool")
	s.answer = func(_ int, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	first := open(t, Options{URL: s.URL, Spool: spool})
	first.addTrace(t, onlyTrace(t))
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan error)
	go func() { flushed <- first.Flush(ctx) }()
	waitFor(t, func() bool { return first.Stats().Retried > 5 }) // each was tried
	cancel()
	<-flushed
	tracertest.NoError(t, first.Close())
	// A process that was killed while it wrote left this.
	tracertest.NoError(t, os.WriteFile(filepath.Join(first.Directory(), ".new"), []byte("{"), 0o600))

	s.mu.Lock()
	s.answer = nil
	s.mu.Unlock()
	elsewhere := newServer(t)
	for url, want := range map[string]int{elsewhere.URL: 0, s.URL: 3} {
		p := open(t, Options{URL: url, Spool: spool})
		tracertest.NoError(t, p.Flush(t.Context()))
		if got := p.Stats(); got.Sent != uint64(want) {
			t.Errorf("%+v, want %d sent", got, want)
		}
		p.addTrace(t, onlyTrace(t))
	}
	elsewhere.once(t, 0)
	s.once(t, 3)
	if len(s.bodies) != 3 {
		t.Errorf("%d IDs, want 3", len(s.bodies))
	}
}

const killedSpool, killedURL = "PUSH_TEST_SPOOL", "PUSH_TEST_URL"

// A process that is killed while the server has its request leaves the profile and no lock.
func TestKilled(t *testing.T) {
	if spool := os.Getenv(killedSpool); spool != "" { // in the process that is killed
		p := open(t, Options{URL: os.Getenv(killedURL), Spool: spool})
		p.addTrace(t, onlyTrace(t))
		_ = p.Flush(t.Context())
		return
	}

	s := newServer(t)
	reached := make(chan struct{})
	s.mu.Lock() // another process sends
	s.answer = func(n int, _ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if n == 2 { // the first one was sent
			close(reached)
			<-r.Context().Done()
		}
		return n == 2
	}
	s.mu.Unlock()
	spool := filepath.Join(t.TempDir(), "spool")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), killedSpool+"="+spool, killedURL+"="+s.URL,
		"TMPDIR="+t.TempDir()) // which it does not remove itself
	tracertest.NoError(t, child.Start())
	<-reached
	tracertest.NoError(t, child.Process.Kill())
	_ = child.Wait()

	p := open(t, Options{URL: s.URL, Spool: spool})
	tracertest.NoError(t, p.Flush(t.Context()))
	s.once(t, 3)
	if got := p.Stats(); len(s.bodies) != 3 || got.Sent != 2 {
		t.Errorf("%d IDs, %+v", len(s.bodies), got)
	}
}

func TestTwoPushers(t *testing.T) {
	s := newServer(t)
	spool := filepath.Join(t.TempDir(), "spool")
	tr := onlyTrace(t)
	var pushers sync.WaitGroup
	for range 4 {
		p := open(t, Options{URL: s.URL, Spool: spool})
		pushers.Go(func() {
			for range 10 {
				p.addTrace(t, tr)
				if err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}

	pushers.Wait()
	s.once(t, 4*10*3)
}

func TestAuthentication(t *testing.T) {
	dir := t.TempDir()
	secret := func(name, text string) string { return put(t, dir, name, text, 0o600) }
	s := newServer(t)
	var headers []string
	s.answer = func(_ int, _ http.ResponseWriter, r *http.Request, _ []byte) bool {
		headers = append(headers, r.Header.Get("X-Scope-OrgID")+" "+r.Header.Get("Authorization"))
		return false
	}
	for _, o := range []Options{
		{Tenant: "team-a"},
		{User: "me", PasswordFile: secret("password", "sesame\n")},
		{TokenFile: secret("token", "abc")},
	} {
		o.URL = s.URL
		p := open(t, o)
		p.addTrace(t, onlyTrace(t))
		if o.TokenFile != "" {
			secret("token", "rotated\n")
		}
		tracertest.NoError(t, p.Flush(t.Context()))
	}

	want := []string{"team-a ", " Basic bWU6c2VzYW1l", " Bearer rotated"}
	if len(headers) != 9 || headers[0] != want[0] || headers[3] != want[1] || headers[6] != want[2] {
		t.Errorf("%q, want %q thrice each", headers, want)
	}

	t.Run("redirection carries no password elsewhere", func(t *testing.T) {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("the redirection was followed")
		}))
		defer elsewhere.Close()
		s := newServer(t)
		s.answer = func(n int, w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if n == 1 {
				http.Redirect(w, r, elsewhere.URL, http.StatusPermanentRedirect)
			}
			return n == 1
		}
		p := open(t, Options{URL: s.URL, TokenFile: secret("token", "abc")})
		p.addTrace(t, onlyTrace(t))
		tracertest.NoError(t, p.Flush(t.Context()))
		s.once(t, 3)
	})

	t.Run("token file that is gone for a while", func(t *testing.T) {
		s := newServer(t)
		path := secret("token", "abc")
		p := open(t, Options{URL: s.URL, TokenFile: path})
		p.addTrace(t, onlyTrace(t))
		tracertest.NoError(t, os.Remove(path))
		flushed := make(chan error)
		go func() { flushed <- p.Flush(t.Context()) }()
		waitFor(t, func() bool { return p.Stats().Retried > 0 })
		secret("token", "abc")
		if err := <-flushed; err != nil {
			t.Error(err)
		}
		s.once(t, 3)
	})
}

// put writes a file into a folder, whatever the umask.
func put(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	tracertest.NoError(t, os.WriteFile(path, []byte(text), mode))
	tracertest.NoError(t, os.Chmod(path, mode))
	return path
}

func TestReadSecret(t *testing.T) {
	dir := t.TempDir()
	for says, path := range map[string]string{
		"mode 0644":          put(t, dir, "readable", "x", 0o644),
		"mode 0640":          put(t, dir, "group", "x", 0o640),
		"more than one line": put(t, dir, "lines", "a\r\nb", 0o600),
		"is empty":           put(t, dir, "empty", "\n", 0o600),
		"not a regular file": "/dev/null",
		"regular file":       dir,
		"no such file":       filepath.Join(dir, "none"),
	} {
		if secret, err := ReadSecret(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q, %v, want %q", secret, err, says)
		}
	}

	t.Run("of another user", func(t *testing.T) {
		tracertest.NeedsRoot(t)
		path := put(t, dir, "foreign", "x", 0o600)
		tracertest.NoError(t, os.Chown(path, 65534, 65534))
		if secret, err := ReadSecret(path); err == nil || !strings.Contains(err.Error(), "UID 65534") {
			t.Errorf("%q, %v", secret, err)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return put(t, dir, name, "x", 0o600) }
	public := filepath.Join(dir, "public")
	tracertest.NoError(t, os.Mkdir(public, 0o700))
	tracertest.NoError(t, os.Chmod(public, 0o777))
	link := filepath.Join(dir, "link")
	tracertest.NoError(t, os.Symlink(t.TempDir(), link))
	const url = "http://127.0.0.1:1"
	label := func(name, value string) Options {
		return Options{URL: url, Labels: map[string]string{name: value}}
	}
	many := Options{URL: url, Labels: make(map[string]string)}
	for i := range maxLabels + 1 {
		many.Labels[fmt.Sprintf("l%d", i)] = "x"
	}

	for says, o := range map[string]Options{
		"is not the URL":              {URL: "pyroscope:4040"},
		"is not the URL of":           {URL: "ftp://pyroscope"},
		"is not the URL of a":         {URL: "http://"},
		"write http://pyroscope:4040": {},
		"cannot be parsed":            {URL: "http://me:secret@host:port%zz/"},
		"a user or a password":        {URL: "https://me:secret@host/"},
		"has a query":                 {URL: "http://host/?secret=1"},
		"the tenant":                  {URL: url, Tenant: "a\nX-Evil: 1"},
		"a colon":                     {URL: url, User: "a:b", PasswordFile: file("p")},
		"needs a user":                {URL: url, PasswordFile: file("p")},
		"a file with the":             {URL: url, User: "me"},
		"not both":                    {URL: url, User: "me", PasswordFile: file("p"), TokenFile: file("t")},
		"over plain http":             {URL: "http://pyroscope", TokenFile: file("good")},
		"would go over plain":         {URL: "http://127.evil", User: "me", PasswordFile: file("p")},
		"no such file":                {URL: url, TokenFile: filepath.Join(dir, "none")},
		"is not the name of":          label("a-b", "x"),
		"not the name of a label":     label("1a", "x"),
		"the label __name__":          label("__name__", "x"),
		"the label phase":             label("phase", "x"),
		"not printable":               label("a", "x\x1b"),
		"longer than 200 bytes":       label("a", strings.Repeat("x", 201)),
		"label a is empty":            label("a", ""),
		"11 labels":                   many,
		"with mode 0700":              {URL: url, Spool: public},
		"not a directory":             {URL: url, Spool: file("spool")},
		"a symbolic link":             {URL: url, Spool: link},
		"size of the spool":           {URL: url, MaxSpoolBytes: -1},
	} {
		if o.Spool == "" {
			o.Spool = filepath.Join(dir, "spool-of-all")
		}
		p, err := Open(o)
		if err == nil {
			_ = p.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
