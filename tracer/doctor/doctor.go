// Package doctor checks which parts of a trace would work on this machine. Each check has a
// finding, and a remedy for a missing requirement.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
)

// Schema is the version of the form of `allocscope doctor --json`. It changes when a field goes or
// changes its meaning; fields may be added at any time.
const Schema = "allocscope-doctor/1"

// A Report is the content of `allocscope doctor --json`.
type Report struct {
	// Schema is the version of this form.
	Schema string `json:"schema"`
	// PID of the process that was checked; absent: none was.
	PID int `json:"pid,omitempty"`
	// Ready is true if no check failed.
	Ready bool `json:"ready"`
	// Failed is the number of checks that failed.
	Failed int `json:"failed"`
	// Checks in the order in which they were made.
	Checks []Result `json:"checks"`
	// Command is what to run next; absent if a check failed.
	Command string `json:"command,omitempty"`
}

// A State is the outcome of a check.
type State string

// The states.
const (
	StateOK   State = "ok"
	StateWarn State = "warn" // something is missing, and a trace goes on without it
	StateFail State = "fail" // nothing can be traced
)

// Result is the result of one check.
type Result struct {
	// Name of the check.
	Name string `json:"name"`
	// State is the outcome of the check.
	State State `json:"state"`
	// Finding is the finding, in words.
	Finding string `json:"finding"`
	// Remedy for the missing requirement; absent: none is missing.
	Remedy string `json:"remedy,omitempty"`
	// Required is set if nothing can be traced without it.
	Required bool `json:"required"`
}

// NewReport checks this machine, and a process unless pid is 0. It attaches nothing.
func NewReport(pid int) Report {
	r := Report{Schema: Schema, PID: pid, Checks: Check(pid)}
	for i := range r.Checks {
		c := &r.Checks[i]
		switch {
		case c.Remedy == "":
			c.State = StateOK
		case c.Required:
			c.State = StateFail
			r.Failed++
		default:
			c.State = StateWarn
		}
	}

	if r.Ready = r.Failed == 0; r.Ready {
		target := "PID"
		if pid != 0 {
			target = strconv.Itoa(pid)
		}
		r.Command = "sudo allocscope trace " + target + " --duration 5m"
	}
	return r
}

// Check makes the checks of NewReport, without their states.
func Check(pid int) []Result {
	results := slices.Concat(
		[]Result{checkKernel(), checkArchitecture()},
		checkPrivileges(),
		[]Result{
			checkBTF(), checkUprobes(features.HaveBPFLinkUprobeMulti(), uprobeDevice),
			checkTracefs(kernel.OpenTracefs), checkPIDNamespace(), checkPrograms(), checkFaults(),
			checkProgram(), checkFolder("."), checkOpenFiles(), checkNVML(),
		},
	)
	if pid != 0 {
		return append(results, checkTarget(pid)...)
	}
	return append(results, checkOwnPages())
}

func checkKernel() Result {
	r := Result{Name: "kernel", Required: true}
	release, supported, err := kernel.Release()
	switch {
	case err != nil:
		r.Finding, r.Remedy = err.Error(), "boot Linux 5.15 or newer"
	case !supported:
		r.Finding, r.Remedy = release+" is too old", "boot Linux 5.15 or newer"
	default:
		r.Finding = release
	}

	return r
}

func checkArchitecture() Result {
	return Result{
		Name:    "architecture",
		Finding: fmt.Sprintf("%s, pages of %d KiB", runtime.GOARCH, process.PageSize>>10),
	}
}

// checkPrivileges lists the missing capabilities: first the ones that any trace needs, and then
// each of the others.
func checkPrivileges() []Result {
	const name = "privilege"
	r := Result{Name: name, Finding: fmt.Sprintf("uid %d", os.Geteuid()), Required: true}
	missing, err := kernel.MissingPrivileges()
	if err != nil {
		r.Finding += ": " + err.Error()
		r.Remedy = "run with sudo"
		return []Result{r}
	}

	var names []string
	for _, p := range kernel.Privileges() {
		names = append(names, p.Name)
	}

	if len(missing) == 0 {
		r.Finding += " with " + strings.Join(names, ", ")
	}

	var required []string
	var others []Result
	for _, p := range missing {
		if p.Without == "" {
			required = append(required, p.Name)
			continue
		}
		others = append(others, Result{
			Name: name, Finding: "without " + p.Name + ": " + p.Without,
			Remedy: "run with sudo, or grant " + p.Name,
		})
	}

	if len(required) > 0 {
		list := strings.Join(required, ", ")
		r.Finding += " without " + list
		r.Remedy = "run with sudo, or grant " + list
	}
	return append([]Result{r}, others...)
}

func checkBTF() Result {
	r := Result{Name: "BTF", Finding: kernel.BTFPath, Required: true}
	if _, err := os.Stat(r.Finding); err != nil {
		r.Finding, r.Remedy = err.Error(), kernel.BTFRemedy
	}
	return r
}

// uprobeDevice is there if the kernel can attach single uprobes.
const uprobeDevice = "/sys/bus/event_source/devices/uprobe"

// checkUprobes checks whether functions can be probed: by a link for many of them, or by single
// uprobes.
func checkUprobes(multi error, device string) Result {
	r := Result{Name: "uprobes", Finding: "in the kernel"}
	if multi == nil {
		return r
	}
	if _, err := os.Stat(device); err != nil {
		r.Finding = err.Error() + ": no allocation sites of heap memory, and no steps"
		r.Remedy = "use a kernel built with CONFIG_UPROBE_EVENTS, as distributions' are"
	}
	return r
}

// checkTracefs opens a tracefs, as a trace does, and closes it.
func checkTracefs(open func() (*kernel.Tracefs, error)) Result {
	r := Result{Name: "tracefs", Finding: "mounted"}
	tracefs, err := open()
	if err != nil {
		r.Finding = err.Error() + ": no source mapping"
		r.Remedy = cmp.Or(kernel.TracefsRemedy(err),
			"trace without it: --sources heap,fault,step")
		return r
	}
	defer tracefs.Close()

	if tracefs.IsOwn() {
		r.Finding = "not mounted: allocscope trace opens one that nobody else sees"
	}
	return r
}

func checkPIDNamespace() Result {
	r := Result{Name: "PID namespace", Finding: "initial"}
	_, inode, err := kernel.PIDNamespace()
	switch {
	case err != nil:
		r.Finding, r.Remedy = err.Error(), "mount /proc"
	case inode != 0:
		r.Finding = "container: only its own processes can be traced"
		r.Remedy = "run on the host, or start the container with --pid=host"
	}

	return r
}

// checkPrograms loads the BPF programs and unloads them again.
func checkPrograms() Result {
	r := Result{Name: "BPF programs", Required: true}
	k, err := load()
	if err == nil {
		defer k.Close()
		_, err = k.AllPrograms()
	}
	if err != nil {
		r.Finding = err.Error()
		r.Remedy = "fix the failed checks above first; --debug shows the verifier's log"
		if errors.Is(err, kernel.ErrLockdown) {
			r.Remedy = "boot the kernel without lockdown=confidentiality"
		}
		return r
	}
	r.Finding = "loaded; functions are probed by " + k.Mode.String()
	return r
}

func load() (*kernel.Kernel, error) {
	return kernel.Load(kernel.Config{
		MaxLive:   kernel.DefaultMaxLive,
		MaxStacks: kernel.DefaultMaxStacks,
		MaxFaults: kernel.MaxFaults,
	})
}

// checkFaults opens and closes the perf event of source fault. A CPU that is offline returns
// ENODEV, so it takes the first one that is online.
func checkFaults() Result {
	r := Result{Name: "source fault"}
	period := source.FaultPeriod(kernel.DefaultInterval)
	cpus, _ := ebpf.PossibleCPU()
	event, err := -1, error(unix.ENODEV)
	for cpu := 0; errors.Is(err, unix.ENODEV) && cpu < max(1, cpus); cpu++ {
		event, err = source.OpenFaultCounter(period, cpu)
	}

	if err != nil {
		r.Finding = fmt.Sprintf("count page faults: %v", err)
		r.Remedy = cmp.Or(source.EventRemedy(err),
			"trace without it: --sources heap,mapping,step")
		return r
	}
	unix.Close(event)
	r.Finding = "page faults can be sampled"
	return r
}

// checkOwnPages checks the page map of allocscope itself.
func checkOwnPages() Result {
	p, err := process.Open(os.Getpid())
	if err != nil {
		return Result{Name: breakdownSource, Finding: err.Error(), Remedy: "mount /proc"}
	}
	defer p.Close()
	return checkPages(p)
}

// breakdownSource is the name of the source that reads page maps.
const breakdownSource = "breakdown"

// checkPages checks the page map of a process, which the RSS breakdown is made of.
func checkPages(p *process.Process) Result {
	r := Result{Name: breakdownSource}
	pagemap, err := p.OpenPagemap()
	if err == nil {
		defer pagemap.Close()
		_, err = pagemap.Runs(nil, 0, 1)
	}

	switch {
	case err != nil:
		r.Finding = err.Error()
		r.Remedy = cmp.Or(residency.Remedy(err), "trace without it: there is no RSS breakdown then")
	case !pagemap.SupportsScan():
		r.Finding = "/proc/PID/pagemap is read: zero pages count as memory, and reservations " +
			"above 64 GiB are left out"
		r.Remedy = "boot Linux 6.7 or newer, which has PAGEMAP_SCAN"
	default:
		r.Finding = "/proc/PID/pagemap is scanned by PAGEMAP_SCAN"
	}

	return r
}

func checkTarget(pid int) []Result {
	r := Result{Name: fmt.Sprintf("pid %d", pid), Required: true}
	p, err := process.Open(pid)
	if err != nil {
		r.Finding, r.Remedy = err.Error(), "name a process that can be traced"
		if errors.Is(err, process.ErrPermission) {
			r.Remedy = "grant CAP_SYS_PTRACE"
		}
		return []Result{r}
	}
	defer p.Close()

	r.Finding = p.Command()
	maps, err := p.Maps()
	if err != nil {
		r.Finding, r.Remedy = err.Error(), "run with sudo"
		return []Result{r}
	}
	return slices.Concat(
		[]Result{r, checkLimit(p), checkPages(p), checkReturns(p, askKernel)},
		checkAllocator(p, maps), checkMalloc(p, maps), checkPython(p, maps),
	)
}

// checkReturns returns whether return probes are safe in a process, as check says.
func checkReturns(p *process.Process, check func(*process.Process) error) Result {
	r := Result{Name: "return probes", Finding: "safe in this process"}
	if err := check(p); err != nil {
		r.Finding = err.Error()
		r.Remedy = "trace without them: the counts stay exact, and each call costs several times as " +
			"much; or boot a newer kernel"
	}
	return r
}

// askKernel loads the BPF programs once more, unless the process has neither a filter nor a shadow
// stack.
func askKernel(p *process.Process) error {
	status, err := p.Status()
	if err != nil {
		return err
	}
	isFiltered, err := p.HasFilter()
	if err != nil || !isFiltered && !status.ShadowStack {
		return err
	}

	k, err := load()
	if err != nil {
		return err
	}
	defer k.Close()
	return k.CheckReturns(p)
}

// checkPython returns which interpreter a process has, if any.
func checkPython(p *process.Process, maps []process.Mapping) []Result {
	found, err := python.Find(p, maps)
	switch {
	case err != nil:
		return []Result{{
			Name: "python", Finding: err.Error(), Remedy: "stacks show native frames alone",
		}}
	case found != nil:
		finding := "CPython " + found.Version + " in " + found.Module.Path
		return []Result{{Name: "python", Finding: finding}}
	}

	return nil
}

// goRemedy shows the objects of Go code.
const goRemedy = "take the program's own heap profile: net/http/pprof"

// hiddenAllocator is the result for a file whose allocator cannot be probed.
func hiddenAllocator(name string, file probe.FileSites) Result {
	r := Result{
		Name:    name,
		Finding: "the allocator of " + file.Hidden + " in " + file.Mapping.Path + " is not probed",
		Remedy:  "keep the symbols of the file: no strip",
	}
	if file.Hidden == growth.AllocatorGo {
		r.Remedy = goRemedy
	}
	return r
}

// checkAllocator returns the allocator functions that would be probed.
func checkAllocator(p *process.Process, maps []process.Mapping) []Result {
	const name = "source heap"
	files, err := probe.Resolve(p, maps)
	if err != nil {
		r := Result{Name: name, Finding: err.Error(), Remedy: "trace without it: --sources mapping"}
		if errors.Is(err, probe.ErrNoAllocator) {
			r.Remedy += "; or link the program dynamically, or keep its symbols"
		}
		if errors.Is(err, probe.ErrGo) {
			r.Remedy += "; or " + goRemedy
		}
		return []Result{r}
	}

	var results []Result
	for _, file := range files {
		if functions := file.Functions(); len(functions) > 0 {
			finding := strings.Join(functions, ", ") + " in " + file.Mapping.Path
			results = append(results, Result{Name: name, Finding: finding})
		}
		if file.Hidden != "" {
			results = append(results, hiddenAllocator(name, file))
		}
	}

	return results
}
