// Package origin keeps the pages of other sites from the answers of allocscope over HTTP.
package origin

import (
	"net"
	"net/http"
	"os"
	"strings"
)

// Hosts are the host names of requests that are answered. Any other name may belong to a foreign
// page and resolve to this address (DNS rebinding), so that the page's script could read the
// answer. The port may be another: an SSH tunnel has its own.
type Hosts struct {
	loopback bool
	names    []string
}

// HostsOf returns the names of a listening address: localhost, those that the user has given, and any
// IP address, which must be a loopback address if the listening one is. Otherwise the name of the
// machine is one more.
func HostsOf(at *net.TCPAddr, given ...string) Hosts {
	h := Hosts{loopback: at.IP.IsLoopback(), names: append([]string{"localhost"}, given...)}
	if name, err := os.Hostname(); err == nil && !h.loopback {
		h.names = append(h.names, name)
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

// Admit reports whether a request is to be answered: one for these hosts, and not for another site.
// It has answered the others. Its headers keep browsers from sharing the answer with other sites.
func Admit(w http.ResponseWriter, r *http.Request, hosts Hosts) bool {
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
		http.Error(w, "allocscope does not answer under that name.", http.StatusMisdirectedRequest)
		return false
	case isCrossSite(r):
		http.Error(w, "These pages cannot be parts of others.", http.StatusForbidden)
		return false
	}

	return true
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
		r.Header.Get("Sec-Fetch-Dest") != "document" || !isReading(r.Method)
}

// isReading is true of methods that change nothing.
func isReading(method string) bool { return method == http.MethodGet || method == http.MethodHead }
