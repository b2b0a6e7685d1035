package view

import (
	"bytes"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// Hosts are the host names of requests that are answered. Any other name may be that of a foreign
// page that was made to resolve to this address (DNS rebinding), so that its script could read the
// answer. The port may be another: that of an SSH tunnel.
type Hosts struct {
	loopback bool
	names    []string
}

// HostsOf returns the names of a listening address: localhost, the host of --http, and any IP
// address, which must be a loopback address if the listening one is. Otherwise the name of the
// machine is one more.
func HostsOf(at *net.TCPAddr, asked string) Hosts {
	h := Hosts{loopback: at.IP.IsLoopback(), names: []string{"localhost", strings.ToLower(asked)}}
	if name, err := os.Hostname(); err == nil && !h.loopback {
		h.names = append(h.names, strings.ToLower(name))
	}
	return h
}

func (h Hosts) allow(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]") // without a port
	}

	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || !h.loopback
	}

	for _, name := range h.names {
		if host != "" && strings.EqualFold(host, name) {
			return true
		}
	}
	return false
}

const (
	// maxConcurrentPages bounds how many pages are made at a time: each works on a copy of its
	// profile. A slow reader of a page that was made holds up no other.
	maxConcurrentPages = 4

	// maxQueryBytes of a request: each name of a profile is matched with each pattern in the query.
	maxQueryBytes = 8 << 10
)

// Guard answers only requests that read, for one of the hosts. Its headers keep browsers from
// sharing the pages with other sites.
func Guard(pages http.Handler, hosts Hosts) http.Handler {
	turns := make(chan struct{}, maxConcurrentPages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "frame-ancestors 'none'")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")

		switch {
		case !hosts.allow(r.Host):
			http.Error(w, "allocscope view does not answer under that name.",
				http.StatusMisdirectedRequest)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "These pages can only be read.", http.StatusMethodNotAllowed)
			return
		case isCrossSite(r):
			http.Error(w, "These pages cannot be parts of others.", http.StatusForbidden)
			return
		case len(r.URL.RawQuery) > maxQueryBytes:
			http.Error(w, "The query is too long.", http.StatusRequestURITooLong)
			return
		}

		select {
		case turns <- struct{}{}:
			makePage(pages, r, turns).send(w)
		case <-r.Context().Done():
		}
	})
}

// isCrossSite reports whether a page of another site makes the request, and not a user who follows
// a link. The answer could not be read there, but would be made. Only browsers send these headers
// (https://www.w3.org/TR/fetch-metadata/).
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" ||
		r.Header.Get("Sec-Fetch-Dest") != "document"
}

// makePage makes a page and ends its turn.
func makePage(pages http.Handler, r *http.Request, turns <-chan struct{}) *recordedPage {
	defer func() { <-turns }()
	page := newRecordedPage()
	pages.ServeHTTP(page, r)
	return page
}

// recordedPage is a page that was not sent yet. It implements http.ResponseWriter.
type recordedPage struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecordedPage() *recordedPage {
	return &recordedPage{header: http.Header{}, status: http.StatusOK}
}

// Header implements http.ResponseWriter.
func (r *recordedPage) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recordedPage) WriteHeader(status int) { r.status = status }

// Write implements http.ResponseWriter.
func (r *recordedPage) Write(data []byte) (int, error) { return r.body.Write(data) }

// send sends the page. Its headers replace those of the writer.
func (r *recordedPage) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(r.body.Len()))
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // the browser may have gone
}
