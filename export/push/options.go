package push

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

const (
	maxLabels      = 10
	maxLabelBytes  = 200 // of a value
	maxNameBytes   = 64
	maxTenantBytes = 150 // as Pyroscope's
)

// check returns the URL of the service.
func (o *Options) check() (*url.URL, error) {
	server, err := ParseURL(o.URL, "http://pyroscope:4040")
	if err != nil {
		return nil, err
	}

	switch {
	case o.Spool == "":
		return nil, errors.New("the spool has no directory")
	case o.MaxSpoolBytes < 0:
		return nil, fmt.Errorf("the size of the spool is %d bytes", o.MaxSpoolBytes)
	case o.Tenant != growth.Printable(o.Tenant) || len(o.Tenant) > maxTenantBytes:
		return nil, fmt.Errorf("the tenant is not printable, or longer than %d bytes", maxTenantBytes)
	case strings.ContainsAny(o.User, ":\r\n") || o.User != growth.Printable(o.User):
		return nil, errors.New("the user has a colon, or is not printable")
	case (o.User == "") != (o.PasswordFile == ""):
		return nil, errors.New("basic authentication needs a user and a file with the password")
	case o.User != "" && o.TokenFile != "":
		return nil, errors.New("give a user or a token, not both")
	}

	for _, path := range []string{o.PasswordFile, o.TokenFile} {
		if path == "" {
			continue
		}
		if !KeepsSecrets(server) {
			return nil, errors.New("the password or the token would go over plain http (write " +
				"https://...; http is for this machine alone)")
		}
		if _, err := ReadSecret(path); err != nil {
			return nil, err
		}
	}

	return server.JoinPath("push.v1.PusherService", "Push"), CheckLabels(o.Labels)
}

// ParseURL returns the URL of a server, whose form errors show by an example. They do not repeat it
// where it has a password.
func ParseURL(text, example string) (*url.URL, error) {
	server, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the URL of the server cannot be parsed (write %s)", example)
	}

	switch {
	case server.User != nil:
		return nil, fmt.Errorf("%s: the URL has a user or a password in it, which messages and the "+
			"command line would show (give a user, and a file with the password)", server.Redacted())
	case server.Scheme != "http" && server.Scheme != "https" || server.Hostname() == "":
		return nil, fmt.Errorf("%q is not the URL of a server (write %s)",
			growth.Printable(growth.Truncate(text, maxLabelBytes)), example)
	case server.RawQuery != "" || server.Fragment != "":
		return nil, errors.New("the URL of the server has a query or a fragment (leave it out)")
	}

	return server, nil
}

// KeepsSecrets reports whether nobody on the way to a server can read a request: the connection is
// encrypted, or does not leave the machine.
func KeepsSecrets(server *url.URL) bool {
	host := server.Hostname()
	ip := net.ParseIP(host)
	return server.Scheme == "https" || host == "localhost" || ip != nil && ip.IsLoopback()
}

var (
	labelName      = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	unsafeInFolder = regexp.MustCompile(`[^a-zA-Z0-9.-]+`)
)

// CheckLabels refuses labels of a user that Pyroscope would not take, or that are allocscope's own.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("there are %d labels, more than %d", len(labels), maxLabels)
	}
	for name, value := range labels {
		shown := growth.Printable(growth.Truncate(name, maxNameBytes))
		switch {
		case !labelName.MatchString(name) || len(name) > maxNameBytes:
			return fmt.Errorf("%q is not the name of a label: letters, digits and _, at most %d, no "+
				"digit first", shown, maxNameBytes)
		case strings.HasPrefix(name, "__") || name == labelPhase:
			return fmt.Errorf("the label %s is reserved", shown)
		case value == "" || len(value) > maxLabelBytes || value != growth.Printable(value):
			return fmt.Errorf("the value of the label %s is empty, longer than %d bytes or not "+
				"printable", shown, maxLabelBytes)
		}
	}

	return nil
}

// destination names the folder in a spool of the profiles for one server and tenant: a profile
// meant for one must not go to another.
func destination(endpoint *url.URL, tenant string) string {
	sum := sha256.Sum256([]byte(endpoint.String() + "\n" + tenant))
	host := unsafeInFolder.ReplaceAllString(endpoint.Host, "-")
	return fmt.Sprintf("%.60s-%x", strings.TrimLeft(host, "."), sum[:4])
}
