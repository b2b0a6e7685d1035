package origin

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestAdmit(t *testing.T) {
	t.Run("hosts", testHosts)
	t.Run("headers", testHeaders)
	t.Run("other sites", testOtherSites)
}

// asked asks the guard of an address for a page.
func asked(t *testing.T, at, given string, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	address := tracertest.Must(net.ResolveTCPAddr("tcp", at))(t)

	answer := httptest.NewRecorder()
	if Admit(answer, request, HostsOf(address, given)) {
		_, _ = answer.WriteString("the page")
	}
	return answer
}

// askedLocally asks a server at a loopback address, under its name.
func askedLocally(t *testing.T, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	return asked(t, "127.0.0.1:1", "127.0.0.1", request)
}

func requestOf(method, host string) *http.Request {
	request := httptest.NewRequest(method, "http://x/", nil)
	request.Host = host
	return request
}

func testHosts(t *testing.T) {
	machine := tracertest.Must(os.Hostname())(t)

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
		request := requestOf(http.MethodGet, test.host)
		if got := asked(t, test.at, test.given, request).Code; got != test.want {
			t.Errorf("at %s (%s), asked for %q: %d, want %d", test.at, test.given, test.host, got,
				test.want)
		}
	}
}

func testHeaders(t *testing.T) {
	for _, host := range []string{"localhost", "evil.example"} {
		header := askedLocally(t, requestOf(http.MethodGet, host)).Header()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Content-Security-Policy":      "frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", host, name, got, want)
			}
		}
	}
}

func testOtherSites(t *testing.T) {
	for _, test := range []struct {
		method, site, mode, dest string
		want                     int
	}{
		{"GET", "", "", "", http.StatusOK}, // no browser
		{"GET", "none", "navigate", "document", http.StatusOK},
		{"GET", "same-origin", "no-cors", "script", http.StatusOK},
		{"GET", "cross-site", "navigate", "document", http.StatusOK}, // a link in a chat
		{"POST", "", "", "", http.StatusOK},
		{"POST", "same-origin", "cors", "empty", http.StatusOK},
		{"POST", "cross-site", "navigate", "document", http.StatusForbidden}, // a form
		{"GET", "cross-site", "no-cors", "image", http.StatusForbidden},
		{"GET", "cross-site", "navigate", "iframe", http.StatusForbidden},
		{"GET", "same-site", "cors", "empty", http.StatusForbidden}, // another port of this machine
	} {
		request := requestOf(test.method, "localhost")
		request.Header.Set("Sec-Fetch-Site", test.site)
		request.Header.Set("Sec-Fetch-Mode", test.mode)
		request.Header.Set("Sec-Fetch-Dest", test.dest)
		answer := askedLocally(t, request)
		made := answer.Body.String() == "the page"
		if answer.Code != test.want || made != (test.want == http.StatusOK) {
			t.Errorf("%+v: status %d, made: %t", test, answer.Code, made)
		}
	}
}
