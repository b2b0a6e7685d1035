package view

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Run("hosts", testHosts)
	t.Run("methods", testMethods)
	t.Run("headers", testHeaders)
	t.Run("other sites", testOtherSites)
	t.Run("long query", testLongQuery)
	t.Run("slow readers", testSlowReaders)
}

var thePage = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("the page"))
})

// asked asks the guard of an address for a page.
func asked(t *testing.T, at, given string, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		t.Fatal(err)
	}

	answer := httptest.NewRecorder()
	Guard(thePage, HostsOf(address, given)).ServeHTTP(answer, request)
	return answer
}

// askedLocally asks that of a loopback address, under its name.
func askedLocally(t *testing.T, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	return asked(t, "127.0.0.1:1", "127.0.0.1", request)
}

func requestOf(method, host, query string) *http.Request {
	request := httptest.NewRequest(method, "http://x/"+query, nil)
	request.Host = host
	return request
}

func testHosts(t *testing.T) {
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
		request := requestOf(http.MethodGet, test.host, "")
		if got := asked(t, test.at, test.given, request).Code; got != test.want {
			t.Errorf("at %s (%s), asked for %q: %d, want %d", test.at, test.given, test.host, got,
				test.want)
		}
	}
}

func testMethods(t *testing.T) {
	for method, want := range map[string]int{
		http.MethodGet: 200, http.MethodHead: 200, http.MethodPost: 405, http.MethodDelete: 405,
		http.MethodPut: 405, http.MethodOptions: 405,
	} {
		if got := askedLocally(t, requestOf(method, "localhost", "")).Code; got != want {
			t.Errorf("%s: %d, want %d", method, got, want)
		}
	}
}

func testHeaders(t *testing.T) {
	for _, host := range []string{"localhost", "evil.example"} {
		header := askedLocally(t, requestOf(http.MethodGet, host, "")).Header()
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
		site, mode, dest string
		want             int
	}{
		{"", "", "", http.StatusOK}, // no browser
		{"none", "navigate", "document", http.StatusOK},
		{"same-origin", "no-cors", "script", http.StatusOK},
		{"cross-site", "navigate", "document", http.StatusOK}, // a link in a chat
		{"cross-site", "no-cors", "image", http.StatusForbidden},
		{"cross-site", "navigate", "iframe", http.StatusForbidden},
		{"same-site", "cors", "empty", http.StatusForbidden}, // another port of this machine
	} {
		request := requestOf(http.MethodGet, "localhost", "")
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

func testLongQuery(t *testing.T) {
	const most = 8 << 10
	for length, want := range map[int]int{
		most: http.StatusOK, most + 1: http.StatusRequestURITooLong,
	} {
		request := requestOf(http.MethodGet, "localhost", "?"+strings.Repeat("f", length))
		if got := askedLocally(t, request).Code; got != want {
			t.Errorf("%d bytes: status %d, want %d", length, got, want)
		}
	}
}

// unread is a connection whose other end takes nothing.
type unread struct {
	http.ResponseWriter
	asked chan<- struct{}
	taken <-chan struct{}
}

func (u unread) Write(data []byte) (int, error) {
	u.asked <- struct{}{}
	<-u.taken
	return len(data), nil
}

func testSlowReaders(t *testing.T) {
	guard := Guard(thePage, HostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, ""))
	request := requestOf(http.MethodGet, "localhost", "")
	asked, taken := make(chan struct{}), make(chan struct{})
	var readers sync.WaitGroup

	for range 2 * maxConcurrentPages {
		readers.Go(func() {
			guard.ServeHTTP(unread{httptest.NewRecorder(), asked, taken}, request)
		})
		<-asked
	}

	answer := httptest.NewRecorder()
	guard.ServeHTTP(answer, request)
	if answer.Body.String() != "the page" {
		t.Errorf("got %q", answer.Body)
	}

	close(taken)
	readers.Wait()
}
