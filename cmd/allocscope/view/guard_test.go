package view

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// asked asks the guard of an address for a page under a host, and gives the status.
func asked(t *testing.T, at, given, method, host string) *httptest.ResponseRecorder {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) })
	request := httptest.NewRequest(method, "http://"+"x/", nil)
	request.Host = host
	answer := httptest.NewRecorder()
	Guard(page, HostsOf(address, given)).ServeHTTP(answer, request)
	return answer
}

func TestOnlyNamesThatNobodyElseOwnsAreAnswered(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const yes, no = http.StatusOK, http.StatusMisdirectedRequest
	for _, test := range []struct {
		at, given, host string
		want            int
	}{
		{"127.0.0.1:8080", "127.0.0.1", "127.0.0.1:8080", yes},
		{"127.0.0.1:8080", "127.0.0.1", "localhost:8080", yes},
		{"127.0.0.1:8080", "127.0.0.1", "LocalHost:8080", yes},
		{"127.0.0.1:8080", "127.0.0.1", "[::1]:8080", yes},
		{"127.0.0.1:80", "127.0.0.1", "127.0.0.1", yes},
		{"[::1]:80", "::1", "[::1]", yes},
		{"127.0.0.1:8080", "127.0.0.1", "localhost:9000", yes}, // ssh -L 9000:localhost:8080
		{"127.0.0.1:8080", "gpu7.example", "gpu7.example:8080", yes},
		{"127.0.0.1:8080", "127.0.0.1", "evil.example:8080", no},
		{"127.0.0.1:8080", "127.0.0.1", "localhost.evil.example:8080", no},
		{"127.0.0.1:8080", "127.0.0.1", "127.0.0.1.evil.example:8080", no},
		{"127.0.0.1:8080", "127.0.0.1", "evil.example", no},
		{"127.0.0.1:8080", "127.0.0.1", "192.0.2.1:8080", no},
		{"127.0.0.1:8080", "127.0.0.1", machine + ".:8080", no},
		{"127.0.0.1:8080", "127.0.0.1", "", no},
		{"127.0.0.1:8080", "", "", no},
		{"0.0.0.0:8080", "0.0.0.0", "192.0.2.1:8080", yes},
		{"0.0.0.0:8080", "0.0.0.0", machine + ":8080", yes},
		{"0.0.0.0:8080", "0.0.0.0", "localhost:8080", yes},
		{"0.0.0.0:8080", "0.0.0.0", "evil.example:8080", no},
	} {
		if got := asked(t, test.at, test.given, http.MethodGet, test.host).Code; got != test.want {
			t.Errorf("at %s (%s), asked for %q: %d, want %d", test.at, test.given, test.host, got, test.want)
		}
	}
}

func TestPagesCanOnlyBeRead(t *testing.T) {
	for method, want := range map[string]int{
		http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodDelete: 405, http.MethodPut: 405, http.MethodOptions: 405,
	} {
		if got := asked(t, "127.0.0.1:1", "127.0.0.1", method, "localhost").Code; got != want {
			t.Errorf("%s: %d, want %d", method, got, want)
		}
	}
}

func TestEveryAnswerTellsBrowsersToKeepItToThemselves(t *testing.T) {
	for _, host := range []string{"localhost", "evil.example"} {
		header := asked(t, "127.0.0.1:1", "127.0.0.1", http.MethodGet, host).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Content-Security-Policy": "frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", host, name, got, want)
			}
		}
	}
}
