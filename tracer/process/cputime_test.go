package process

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The kernel tells the same in /proc/PID/stat, in ticks.
func TestTheCPUTimeOfAnotherProcessIsThatOfItsStat(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo ready; read x"))
	target.Await("ready")
	p, err := Open(target.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, err := p.CPUTime()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := p.read("stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	want := time.Duration(user+system) * tick
	if got < want-2*tick || got > want+2*tick || want == 0 {
		t.Errorf("%s, want %s", got, want)
	}
}
