package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/metrics"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestAbuse(t *testing.T) {
	t.Run("raw requests", testRawRequests)
	t.Run("foreign hosts", testForeignHosts)
	t.Run("other sites", testOtherSites)
	t.Run("slow clients", testSlowClients)
	t.Run("many connections", testManyConnections)
}

// connect opens a connection that ends with the test.
func connect(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn := tracertest.Must(net.DialTCP("tcp", nil, s.Address()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rawAnswer sends bytes, and returns the status of the answer; 0: the connection was closed.
func rawAnswer(t *testing.T, s *Server, request string) (status int, body string) {
	t.Helper()
	conn := connect(t, s)
	_, _ = io.WriteString(conn, request) // it may be refused before its end
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func testRawRequests(t *testing.T) {
	a := &agent{}
	s := start(t, Options{Listen: "127.0.0.1:0", TokenFile: writeToken(t, secret, 0o600)}, a,
		defaultLimits)
	const host = "Host: localhost\r\n"
	for _, test := range []struct {
		name, request string
		want          []int
	}{
		{"plain", "GET /healthz HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", []int{200}},
		{"head", "HEAD /healthz HTTP/1.0\r\n" + host + "\r\n", []int{200}},
		{"HTTP/1.0 without Host", "GET /healthz HTTP/1.0\r\n\r\n", []int{421}},
		{"HTTP/1.1 without Host", "GET /healthz HTTP/1.1\r\n\r\n", []int{400}},
		{"two hosts", "GET /healthz HTTP/1.1\r\n" + host + "Host: evil\r\n\r\n", []int{400}},
		{"foreign URL", "GET http://evil.example/metrics HTTP/1.1\r\n" + host + "\r\n", []int{421}},
		{"proxy", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", []int{421}},
		{"options", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"delete", "DELETE /metrics HTTP/1.1\r\n" + host + "\r\n", []int{405}},
		{"get of a post", "GET /trace HTTP/1.1\r\n" + host + "\r\n", []int{405}},
		{"post of a get", "POST /metrics HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n", []int{405}},
		{"status", "GET /status HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"profiles of the agent", "GET /debug/pprof/heap HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"folder", "GET / HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"dots", "GET /healthz/../metrics HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"encoded dots", "GET /%2e%2e/etc/passwd HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"slashes", "GET //metrics HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"a byte of zero", "GET /metrics%00 HTTP/1.1\r\n" + host + "\r\n", []int{404}},
		{"long header", "GET /metrics HTTP/1.1\r\n" + host + "X: " + strings.Repeat("x", 64<<10) +
			"\r\n\r\n", []int{431, 0}},
		{"many headers", "GET /metrics HTTP/1.1\r\n" + host + strings.Repeat("X: y\r\n", 20_000) +
			"\r\n", []int{431, 0}},
		{
			"long line", "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n",
			[]int{431, 414, 0},
		},
		{"two lengths", "POST /trace HTTP/1.1\r\n" + host + "Content-Length: 1\r\n" +
			"Content-Length: 2\r\n\r\n{}", []int{400}},
		{"length and chunks", "POST /trace HTTP/1.1\r\n" + host + "Content-Length: 1\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []int{400, 401}},
		{"endless chunks", "POST /trace HTTP/1.1\r\n" + host + "Authorization: Bearer " + secret +
			"\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("400\r\n"+strings.Repeat(" ", 1024)+"\r\n", 100), []int{413}},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{421, 505, 400, 0}},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, body := rawAnswer(t, s, test.request)
			found := false
			for _, want := range test.want {
				found = found || status == want
			}
			if !found || strings.Contains(body, "allocscope_") {
				t.Errorf("status %d, want %v: %.200q", status, test.want, body)
			}
		})
	}

	if a.asked() != 0 {
		t.Errorf("a trace was started: %v", a.requests)
	}
}

func testForeignHosts(t *testing.T) {
	s := start(t, Options{Listen: "127.0.0.1:0", Hosts: []string{"gpu7.example"}}, &agent{},
		defaultLimits)
	for host, want := range map[string]int{
		"localhost:9753": 200, "127.0.0.1": 200, "[::1]:80": 200, "gpu7.example": 200,
		"GPU7.example:9753": 200, "evil.example": 421, "localhost.evil.example": 421,
		"gpu7.example.evil": 421, "192.0.2.1:9753": 421,
	} {
		for _, path := range []string{"/metrics", "/healthz"} {
			status, text, _ := ask(t, s, "GET", path, "", map[string]string{"Host": host})
			if status != want || want != 200 && strings.Contains(text, "allocscope_") {
				t.Errorf("%s of %s: %d, want %d", path, host, status, want)
			}
		}
	}
}

// A page of another site can neither read an answer nor start a trace.
func testOtherSites(t *testing.T) {
	a := &agent{}
	s := start(t, Options{Listen: "127.0.0.1:0", TokenFile: writeToken(t, secret, 0o600)}, a,
		defaultLimits)
	status, _, header := ask(t, s, "GET", "/metrics", "", map[string]string{
		"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors",
		"Sec-Fetch-Dest": "empty",
	})
	if status != 403 || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("metrics: %d, %v", status, header)
	}

	status, _, header = ask(t, s, "OPTIONS", "/trace", "", map[string]string{
		"Origin": "https://evil.example", "Access-Control-Request-Method": "POST",
		"Access-Control-Request-Headers": "authorization,content-type",
	})
	if status != 405 || header.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("preflight: %d, %v", status, header)
	}
	status, _, _ = ask(t, s, "POST", "/trace", `{"pid":42}`, map[string]string{
		"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
		"Sec-Fetch-Dest": "document", "Content-Type": "text/plain",
	})
	if status != 403 || a.asked() != 0 {
		t.Errorf("form: %d, %v", status, a.requests)
	}
}

// mustBeClosed waits until the server has closed a connection.
func mustBeClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	tracertest.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
		t.Error("the connection is still open")
	}
}

func testSlowClients(t *testing.T) {
	s := start(t, Options{Listen: "127.0.0.1:0", TokenFile: writeToken(t, secret, 0o600)}, &agent{},
		shortLimits)
	for name, begin := range map[string]string{
		"nothing":     "",
		"half a line": "GET /met",
		"half a header": "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-A: a\r\n" +
			"X-B: ",
		"half a body": "POST /trace HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + secret +
			"\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		"no second request": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, s)
			tracertest.Must(io.WriteString(conn, begin))(t)
			mustBeClosed(t, conn)
		})
	}

	t.Run("a byte at a time", func(t *testing.T) {
		conn := connect(t, s)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			mustBeClosed(t, conn)
		}()
		_, _ = io.WriteString(conn, "GET /metrics HTTP/1.1\r\n")
		for {
			select {
			case <-closed:
				return
			case <-time.After(10 * time.Millisecond):
				_, _ = io.WriteString(conn, "X: y\r\n")
			}
		}
	})
}

// Connections that send nothing hold up others until their time is over, and no longer.
func testManyConnections(t *testing.T) {
	few := defaultLimits // of which an answer needs little
	few.header, few.connections = 2*time.Second, 4
	a := &agent{state: metrics.State{Node: "n"}}
	s := start(t, Options{Listen: "127.0.0.1:0"}, a, few)
	for range few.connections {
		connect(t, s)
	}
	status, text := rawAnswer(t, s,
		fmt.Sprintf("GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", s.Address()))
	if status != 200 || !strings.Contains(text, "allocscope_build_info") {
		t.Errorf("status %d: %s", status, text)
	}
}
