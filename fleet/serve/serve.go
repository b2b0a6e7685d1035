// Package serve answers requests to the agent: metrics, health, and traces on request.
package serve

import (
	"context"

	"github.com/allocscope/allocscope/export/metrics"
)

// A Source is the agent.
type Source interface {
	// State returns the present state. It may be called from any goroutine, and is quick.
	State() metrics.State
	// Healthy returns why a restart would help; nil: it would not.
	Healthy() error
	// Ready returns why the agent does not do all of its work; nil: it does.
	Ready() error
	// RequestTrace starts a trace of a watched process. It does not wait for its end. The error is
	// for the client.
	RequestTrace(ctx context.Context, r Request) (Answer, error)
}

// A Request is which process is to be traced: one of Job and Rank, or PID.
type Request struct {
	Job  string `json:"job_id,omitempty"`
	Rank *int   `json:"rank,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// An Answer names the trace that has been started.
type Answer struct {
	PID     int     `json:"pid"`
	Folder  string  `json:"folder"`
	LengthS float64 `json:"length_s"`
}

// The defaults of where an agent is reached.
const (
	DefaultListen = "127.0.0.1:9753"
	DefaultSocket = "/run/allocscope-agent/agent.sock"
)

// Options say where requests are answered.
type Options struct {
	// Listen is the TCP address of /metrics, /healthz and /readyz; empty: none.
	Listen string
	// Health is another address of /healthz and /readyz, which connections to Listen cannot take away;
	// empty: none.
	Health string
	// Hosts are the names, besides localhost and the listening ones, that a Host header may have.
	Hosts []string
	// TokenFile has the bearer token that POST /trace on Listen needs; empty: it is refused there.
	TokenFile string
	// Socket is the path of the Unix socket on which root may ask for traces; empty: none.
	Socket string
}
