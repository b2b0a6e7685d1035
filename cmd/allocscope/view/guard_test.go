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

// asked asks the guard of an address for a page under a host, and returns the status.
func asked(t *testing.T, at, given, method, host string) *httptest.ResponseRecorder {
	t.Helper()
	address, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		t.Fatal(err)
	}

	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("the page"))
	})

	request := httptest.NewRequest(method, "http://"+"x/", nil)
	request.Host = host
	answer := httptest.NewRecorder()
	Guard(page, HostsOf(address, given)).ServeHTTP(answer, request)

	return answer
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
		if got := asked(t, test.at, test.given, http.MethodGet, test.host).Code; got != test.want {
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
		if got := asked(t, "127.0.0.1:1", "127.0.0.1", method, "localhost").Code; got != want {
			t.Errorf("%s: %d, want %d", method, got, want)
		}
	}
}

func testHeaders(t *testing.T) {
	for _, host := range []string{"localhost", "evil.example"} {
		header := asked(t, "127.0.0.1:1", "127.0.0.1", http.MethodGet, host).Header()
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
		request := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
		request.Header.Set("Sec-Fetch-Site", test.site)
		request.Header.Set("Sec-Fetch-Mode", test.mode)
		request.Header.Set("Sec-Fetch-Dest", test.dest)
		answer := httptest.NewRecorder()
		made := false
		page := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { made = true })
		Guard(page, HostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "")).ServeHTTP(answer,
			request)
		if answer.Code != test.want || made != (test.want == http.StatusOK) {
			t.Errorf("%+v: status %d, made: %t", test, answer.Code, made)
		}
	}
}

func testLongQuery(t *testing.T) {
	for length, want := range map[int]int{8 << 10: http.StatusOK, 8<<10 +
		1: http.StatusRequestURITooLong} {
		request := httptest.NewRequest(http.MethodGet, "http://localhost/?"+
			strings.Repeat("f", length), nil)
		answer := httptest.NewRecorder()
		Guard(http.NotFoundHandler(), HostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
			"")).ServeHTTP(answer, request)
		if want == http.StatusOK {
			want = http.StatusNotFound // by the page
		}

		if answer.Code != want {
			t.Errorf("%d bytes: status %d, want %d", length, answer.Code, want)
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
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("the page"))
	})

	guard := Guard(page, HostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, ""))
	request := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
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
