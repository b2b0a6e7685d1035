package view

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/allocscope/allocscope/export/page/origin"
)

func TestGuard(t *testing.T) {
	t.Run("methods", testMethods)
	t.Run("long query", testLongQuery)
	t.Run("slow readers", testSlowReaders)
}

var thePage = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("the page"))
})

// loopback is the guard of pages at a loopback address.
func loopback(pages http.Handler) http.Handler {
	return Guard(pages, origin.HostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
}

func askedLocally(t *testing.T, request *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	loopback(thePage).ServeHTTP(answer, request)
	return answer
}

func requestOf(method, host, query string) *http.Request {
	request := httptest.NewRequest(method, "http://x/"+query, nil)
	request.Host = host
	return request
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
	pages := loopback(thePage)
	request := requestOf(http.MethodGet, "localhost", "")
	asked, taken := make(chan struct{}), make(chan struct{})
	var readers sync.WaitGroup

	for range 2 * maxConcurrentPages {
		readers.Go(func() {
			pages.ServeHTTP(unread{httptest.NewRecorder(), asked, taken}, request)
		})
		<-asked
	}

	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, request)
	if answer.Body.String() != "the page" {
		t.Errorf("got %q", answer.Body)
	}

	close(taken)
	readers.Wait()
}
