package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A storage is a generation of Pyroscope's storage. Version 1.12 has both: v1, with ingesters, is its
// default; v2, with segment writers and a query backend, is an experiment, and the default of 2.0:
// https://grafana.com/docs/pyroscope/latest/reference-pyroscope-v2-architecture/
type storage string

const (
	storageV1 storage = "v1"
	storageV2 storage = "v2"
)

// A pyroscope is a server of one process, with its data in a folder of the test.
type pyroscope struct {
	url         string
	folder      string
	environment []string // variables beside the inherited ones
	flags       []string
	process     *process
	before      time.Duration // CPU time of the processes before this one
}

// startPyroscope starts a server that listens on loopback alone. Flags are added to its own.
func startPyroscope(t *testing.T, generation storage, flags ...string) *pyroscope {
	t.Helper()
	ports := freePorts(t, 4)
	p := &pyroscope{
		url: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), folder: t.TempDir(),
		flags: []string{
			"-target=all", "-storage.backend=filesystem", "-usage-stats.enabled=false",
			"-self-profiling.disable-push=true", "-tracing.enabled=false",
			"-server.http-listen-address=127.0.0.1", "-server.grpc-listen-address=127.0.0.1",
			"-server.http-listen-port=" + strconv.Itoa(ports[0]),
			"-server.grpc-listen-port=" + strconv.Itoa(ports[1]),
			"-memberlist.bind-addr=127.0.0.1", "-memberlist.advertise-addr=127.0.0.1",
			"-memberlist.bind-port=" + strconv.Itoa(ports[2]),
			"-ingester.min-ready-duration=0s", "-ingester.lifecycler.addr=127.0.0.1",
		},
	}

	for _, ring := range []string{
		"distributor.ring", "query-frontend", "query-scheduler.ring", "overrides-exporter.ring",
		"compactor.ring", "store-gateway.sharding-ring",
	} {
		p.flags = append(p.flags, "-"+ring+".instance-addr=127.0.0.1")
	}
	if generation == storageV2 {
		p.useStorageV2(ports[1], ports[3])
	}
	p.flags = append(p.flags, flags...)
	p.start(t)
	return p
}

// useStorageV2 has the server write and read by its storage v2 alone. Its parts call each other at
// the port of gRPC.
func (p *pyroscope) useStorageV2(grpcPort, raftPort int) {
	p.environment = []string{"PYROSCOPE_V2_EXPERIMENT=1"}
	grpc, raft := "127.0.0.1:"+strconv.Itoa(grpcPort), "127.0.0.1:"+strconv.Itoa(raftPort)
	p.flags = append(p.flags,
		"-write-path=segment-writer", "-enable-query-backend=true",
		"-metastore.address="+grpc, "-query-backend.address="+grpc,
		"-metastore.raft.bind-address="+raft, "-metastore.raft.advertise-address="+raft,
		"-metastore.raft.server-id="+raft, "-metastore.min-ready-duration=0s",
		"-segment-writer.min-ready-duration=0s", "-segment-writer.lifecycler.addr=127.0.0.1")
}

func (p *pyroscope) start(t *testing.T) {
	t.Helper()
	command := exec.Command(program(t, "ALLOCSCOPE_PYROSCOPE"), p.flags...)
	command.Dir = p.folder
	command.Env = append(os.Environ(), p.environment...)
	p.process = start(t, command)
	awaitPage(t, "pyroscope is ready", p.url+"/ready")
}

// restart ends the server in order and starts it again on its data.
func (p *pyroscope) restart(t *testing.T) {
	t.Helper()
	p.process.stop(t, syscall.SIGTERM)
	p.before = p.cpu()
	p.start(t)
}

// cpu is the CPU time of the server, which has ended.
func (p *pyroscope) cpu() time.Duration {
	return p.before + p.process.ProcessState.UserTime() + p.process.ProcessState.SystemTime()
}

// diskBytes is the size of its data.
func (p *pyroscope) diskBytes(t *testing.T) (size int64) {
	t.Helper()
	err := filepath.WalkDir(p.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})

	tracertest.NoError(t, err)
	return size
}

// call calls a method of Connect with JSON.
func (p *pyroscope) call(method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	response, err := http.Post(p.url+"/"+method, "application/json", bytes.NewReader(body))
	text, err := bodyOf(response, err)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return json.Unmarshal([]byte(text), answer)
}

// profileTypes returns the IDs of the types of profiles that the server has.
func (p *pyroscope) profileTypes(t *testing.T) (ids []string) {
	t.Helper()
	var answer struct {
		ProfileTypes []struct{ ID string } `json:"profileTypes"`
	}
	tracertest.NoError(t, p.call("querier.v1.QuerierService/ProfileTypes", window(), &answer))
	for _, profileType := range answer.ProfileTypes {
		ids = append(ids, profileType.ID)
	}
	return ids
}

// series returns the label sets of all profiles.
func (p *pyroscope) series(t *testing.T, matcher string, names ...string) []map[string]string {
	t.Helper()
	request := window()
	request["matchers"], request["labelNames"] = []string{matcher}, names
	var answer struct {
		LabelsSet []struct {
			Labels []struct{ Name, Value string }
		} `json:"labelsSet"`
	}
	tracertest.NoError(t, p.call("querier.v1.QuerierService/Series", request, &answer))

	var all []map[string]string
	for _, set := range answer.LabelsSet {
		labels := make(map[string]string)
		for _, label := range set.Labels {
			labels[label.Name] = label.Value
		}
		all = append(all, labels)
	}
	return all
}

// sums adds up the profiles of a type by the value of a label.
func (p *pyroscope) sums(profileType, selector, label string) (map[string]float64, error) {
	request := window()
	request["profileTypeID"], request["labelSelector"] = profileType, selector
	request["groupBy"], request["step"] = []string{label}, 1.0
	var answer struct {
		Series []struct {
			Labels []struct{ Name, Value string }
			Points []struct{ Value float64 }
		}
	}
	if err := p.call("querier.v1.QuerierService/SelectSeries", request, &answer); err != nil {
		return nil, err
	}

	sums := make(map[string]float64)
	for _, series := range answer.Series {
		name := ""
		for _, l := range series.Labels {
			if l.Name == label {
				name = l.Value
			}
		}
		for _, point := range series.Points {
			sums[name] += point.Value
		}
	}

	return sums, nil
}

// names returns the functions of the flame graph of the profiles of a type.
func (p *pyroscope) names(t *testing.T, profileType, selector string) []string {
	t.Helper()
	request := window()
	request["profileTypeID"], request["labelSelector"] = profileType, selector
	var answer struct {
		Flamegraph struct{ Names []string }
	}
	method := "querier.v1.QuerierService/SelectMergeStacktraces"
	tracertest.NoError(t, p.call(method, request, &answer))
	return answer.Flamegraph.Names
}

// window is a request about the last hour and the next minute.
func window() map[string]any {
	now := time.Now()
	return map[string]any{
		"start": now.Add(-time.Hour).UnixMilli(), "end": now.Add(time.Minute).UnixMilli(),
	}
}
