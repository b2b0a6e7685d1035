package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"

	"github.com/allocscope/allocscope/export/page/origin"
	"github.com/allocscope/allocscope/growth"
)

const (
	// maxReasonBytes of an error, in an answer.
	maxReasonBytes = 1000
	// maxJobBytes of a job ID in a request.
	maxJobBytes = 256
)

// routes are the handlers by path and method. A path is one of these to the letter: nothing is
// redirected.
type routes map[string]route

type route struct {
	method string
	handle http.HandlerFunc
}

// ServeHTTP implements http.Handler.
func (r routes) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	to, ok := r[request.URL.Path]
	isRead := to.method == http.MethodGet && request.Method == http.MethodHead
	switch {
	case !ok:
		http.Error(w, "There is no such page.", http.StatusNotFound)
	case request.Method != to.method && !isRead:
		w.Header().Set("Allow", to.method)
		http.Error(w, "Ask with "+to.method+".", http.StatusMethodNotAllowed)
	default:
		to.handle(w, request)
	}
}

// routesOf are the routes for any user of the machine, and traces for clients that have the token.
func (s *Server) routesOf(tokenFile string, source Source) routes {
	all := healthRoutes(source)
	all["/metrics"] = route{http.MethodGet, newScrape(source, s.limits.maxAge).ServeHTTP}
	all["/trace"] = route{http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
		if authorize(w, r, tokenFile) {
			requestTrace(w, r, source)
		}
	}}
	return all
}

// healthRoutes are the routes for the supervisor that restarts the agent.
func healthRoutes(source Source) routes {
	return routes{
		"/healthz": {http.MethodGet, probe(source.Healthy)},
		"/readyz":  {http.MethodGet, probe(source.Ready)},
	}
}

// handleTCP answers requests for these hosts.
func handleTCP(hosts origin.Hosts, all routes) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin.Admit(w, r, hosts) {
			all.ServeHTTP(w, r)
		}
	})
}

// probe answers whether there is no error.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			refuse(w, http.StatusServiceUnavailable, err)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // the client may have gone
	}
}

// handleUnix answers root and this user, of connections from peers.
func handleUnix(source Source) http.Handler {
	all := routes{
		"/trace": {http.MethodPost, func(w http.ResponseWriter, r *http.Request) {
			requestTrace(w, r, source)
		}},
		"/status": {http.MethodGet, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, statusOf(source))
		}},
	}
	allowed := []string{peerAddr(0).String(), peerAddr(os.Geteuid()).String()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(allowed, r.RemoteAddr) {
			refuse(w, http.StatusForbidden,
				fmt.Errorf("%s may not ask the agent: root may", r.RemoteAddr))
			return
		}
		all.ServeHTTP(w, r)
	})
}

func requestTrace(w http.ResponseWriter, r *http.Request, source Source) {
	request, status, err := readRequest(w, r)
	if err != nil {
		refuse(w, status, err)
		return
	}

	started, err := source.RequestTrace(r.Context(), request)
	if err != nil {
		refuse(w, http.StatusConflict, err)
		return
	}
	answer(w, started)
}

// readRequest reads the body. An error has the status of the answer.
func readRequest(w http.ResponseWriter, r *http.Request) (request Request, status int, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" {
		return request, http.StatusUnsupportedMediaType,
			errors.New("the request is not of Content-Type application/json")
	}

	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&request)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something comes after the request")
		}
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return request, http.StatusRequestEntityTooLarge,
			fmt.Errorf("the request has more than %d bytes", large.Limit)
	}
	if err == nil {
		err = request.check()
	}
	return request, http.StatusBadRequest, err
}

// check refuses a request that does not name one process.
func (r Request) check() error {
	switch {
	case r.PID < 0:
		return fmt.Errorf("pid %d is not a PID", r.PID)
	case r.PID == 0 && r.Job == "":
		return errors.New("give a pid, or a job_id and a rank")
	case r.PID != 0 && (r.Job != "" || r.Rank != nil):
		return errors.New("give a pid, or a job_id and a rank: not both")
	case r.Rank != nil && *r.Rank < 0:
		return fmt.Errorf("rank %d is not a rank", *r.Rank)
	case len(r.Job) > maxJobBytes:
		return fmt.Errorf("the job_id has more than %d bytes", maxJobBytes)
	}

	return nil
}

// answer sends JSON.
func answer(w http.ResponseWriter, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	_, _ = w.Write(append(text, '\n')) // the client may have gone
}

// refuse sends the reason of a refusal in one line. It may have texts of the target.
func refuse(w http.ResponseWriter, status int, reason error) {
	http.Error(w, growth.Truncate(growth.Printable(reason.Error()), maxReasonBytes), status)
}
