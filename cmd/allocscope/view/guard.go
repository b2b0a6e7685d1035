package view

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// Hosts are the names under which a browser may ask for the pages. Any other is that of a foreign page whose name was made to
// lead here (DNS rebinding), so that its script may read what it asks for. The port may be another: that of an SSH tunnel.
type Hosts struct {
	loopback bool
	names    []string
}

// HostsOf are the names of an address that is listened at: localhost, what was asked for, and any address in digits, of the
// loopback network if it listens there alone. Elsewhere the name of the machine is one more.
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
	// mostAtOnce bounds how many pages are made at a time: each works on a copy of its profile. A page that is made is sent without
	// holding up others, however slowly it is read.
	mostAtOnce = 4
	// longestQuery in bytes: each name of a profile is matched with each pattern in it.
	longestQuery = 8 << 10
)

// Guard lets only readers through, who ask for one of the hosts, and tells browsers to keep the pages to themselves.
func Guard(pages http.Handler, hosts Hosts) http.Handler {
	turns := make(chan struct{}, mostAtOnce)
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
			http.Error(w, "This is allocscope view, which is not known by that name.", http.StatusMisdirectedRequest)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "These pages can only be read.", http.StatusMethodNotAllowed)
			return
		case isFromElsewhere(r):
			http.Error(w, "These pages cannot be parts of others.", http.StatusForbidden)
			return
		case len(r.URL.RawQuery) > longestQuery:
			http.Error(w, "The query is too long.", http.StatusRequestURITooLong)
			return
		}
		select {
		case turns <- struct{}{}:
			made(pages, r, turns).send(w)
		case <-r.Context().Done():
		}
	})
}

// isFromElsewhere tells whether a browser says that a page of another site asks, and not somebody who follows a link: its answer is
// kept from that page anyway, but would have been made. Only browsers say so (https://www.w3.org/TR/fetch-metadata/).
func isFromElsewhere(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// made is a page that is made in a turn, which ends when it is.
func made(pages http.Handler, r *http.Request, turns <-chan struct{}) *recorded {
	defer func() { <-turns }()
	page := newRecorded()
	pages.ServeHTTP(page, r)
	return page
}
