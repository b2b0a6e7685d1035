package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
)

// A Check is one thing that a trace needs or can make use of.
type Result struct {
	Name    string
	Finding string
	// Remedy for what is missing; empty if nothing is.
	Remedy string
	// Required: without it nothing can be traced.
	Required bool
}

// Examine tells what would work on this machine, and for a process unless pid is 0. It attaches nothing.
func Check(pid int) []Result {
	checks := []Result{checkKernel(), checkArchitecture(), checkPrivilege(), checkBTF(), checkTracefs(), checkPIDNamespace()}
	checks = append(checks, checkPrograms(), checkFaults(), checkNVML())
	if pid != 0 {
		return append(checks, checkTarget(pid)...)
	}
	return append(checks, checkOwnPages())
}

func checkKernel() Result {
	c := Result{Name: "kernel", Required: true}
	release, supported, err := kernel.Release()
	switch {
	case err != nil:
		c.Finding, c.Remedy = err.Error(), "cannot tell"
	case !supported:
		c.Finding, c.Remedy = release, "boot Linux 5.15 or newer"
	default:
		c.Finding = release
	}
	return c
}

func checkArchitecture() Result {
	c := Result{Name: "architecture", Finding: runtime.GOARCH}
	if runtime.GOARCH == "arm64" {
		c.Finding += ": functions are probed at their entries"
	}
	return c
}

func checkPrivilege() Result {
	c := Result{Name: "privilege", Finding: fmt.Sprintf("uid %d", os.Geteuid()), Required: true}
	missing, err := kernel.MissingPrivileges()
	switch {
	case err != nil:
		c.Remedy = "run as root: " + err.Error()
	case len(missing) > 0:
		c.Finding += " without " + strings.Join(missing, ", ")
		c.Remedy = "run with sudo"
	}
	return c
}

func checkBTF() Result {
	c := Result{Name: "BTF", Finding: "/sys/kernel/btf/vmlinux", Required: true}
	if _, err := os.Stat(c.Finding); err != nil {
		c.Finding, c.Remedy = err.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF, as distributions' are"
	}
	return c
}

func checkTracefs() Result {
	c := Result{Name: "tracefs", Finding: "mounted"}
	if !kernel.TracefsMounted() {
		c.Finding, c.Remedy = "not mounted: source mapping needs it", "trace mounts it by itself; or: mount -t tracefs tracefs "+kernel.TracefsPath
	}
	return c
}

func checkPIDNamespace() Result {
	c := Result{Name: "PID namespace", Finding: "the initial one"}
	_, inode, err := kernel.PIDNamespace()
	switch {
	case err != nil:
		c.Finding, c.Remedy = err.Error(), "mount /proc"
	case inode != 0:
		c.Finding, c.Remedy = "a container's: only its own processes can be traced", "run on the host, or the container with --pid=host"
	}
	return c
}

func checkPrograms() Result {
	c := Result{Name: "BPF programs", Required: true}
	k, err := kernel.Load(kernel.Config{MaxLive: kernel.DefaultMaxLive, MaxStacks: kernel.DefaultMaxStacks, MaxFaults: kernel.MaxFaults})
	if err != nil {
		c.Finding, c.Remedy = err.Error(), "see the line above that is not ok, or --debug"
		return c
	}
	defer k.Close()
	c.Finding = "the kernel takes them; functions are probed by " + k.Mode.String()
	return c
}

// checkFaults opens what source fault needs, on the first CPU that is online, and lets go of it.
func checkFaults() Result {
	c := Result{Name: "source fault"}
	cpus, _ := ebpf.PossibleCPU()
	event, err := -1, error(unix.ENODEV)
	for cpu := 0; errors.Is(err, unix.ENODEV) && cpu < max(1, cpus); cpu++ {
		event, err = source.OpenFaultCounter(source.FaultPeriod(kernel.DefaultInterval), cpu)
	}
	if err != nil {
		c.Finding = fmt.Sprintf("count page faults: %v", err)
		c.Remedy = cmp.Or(source.EventRemedy(err), "trace without it: --sources heap,mapping,step")
		return c
	}
	unix.Close(event)
	c.Finding = "page faults can be counted"
	return c
}

// checkOwnPages is checkPages where there is no other process to ask for.
func checkOwnPages() Result {
	p, err := process.Open(os.Getpid())
	if err != nil {
		return Result{Name: "ledger", Finding: err.Error(), Remedy: "mount /proc"}
	}
	defer p.Close()
	return checkPages(p)
}

// checkPages asks for the pages of a process, which the ledger is made of.
func checkPages(p *process.Process) Result {
	c := Result{Name: "ledger"}
	pages, err := p.OpenPagemap()
	if err == nil {
		defer pages.Close()
		_, err = pages.Runs(nil, 0, 1)
	}
	switch {
	case err != nil:
		c.Finding, c.Remedy = err.Error(), cmp.Or(residency.Remedy(err), "trace without it: what is resident is not told apart")
	case !pages.SupportsScan():
		c.Finding = "the page map is read, without reservations above 64 GiB; pages that only read zeros count"
		c.Remedy = "boot Linux 6.7 or newer, which has PAGEMAP_SCAN"
	default:
		c.Finding = "the page map is scanned"
	}
	return c
}

func checkTarget(pid int) []Result {
	target := Result{Name: fmt.Sprintf("pid %d", pid), Required: true}
	p, err := process.Open(pid)
	if err != nil {
		target.Finding, target.Remedy = err.Error(), "name a process that can be traced"
		return []Result{target}
	}
	defer p.Close()
	target.Finding = p.Command()
	maps, err := p.Maps()
	if err != nil {
		target.Finding, target.Remedy = err.Error(), "run as root"
		return []Result{target}
	}
	return slices.Concat([]Result{target, checkPages(p)}, checkAllocator(p, maps), checkPython(p, maps))
}

// checkPython says which interpreter there is, if any.
func checkPython(p *process.Process, maps []process.Mapping) []Result {
	found, err := python.Find(p, maps)
	switch {
	case err != nil:
		return []Result{{Name: "python", Finding: err.Error(), Remedy: "native frames alone are shown"}}
	case found != nil:
		return []Result{{Name: "python", Finding: "CPython " + found.Version + " in " + found.Module.Path}}
	}
	return nil
}

func checkAllocator(p *process.Process, maps []process.Mapping) []Result {
	targets, err := probe.Resolve(p, maps)
	if err != nil {
		c := Result{Name: "source heap", Finding: err.Error(), Remedy: "only mappings can be traced"}
		if errors.Is(err, probe.ErrNoAllocator) {
			c.Remedy += "; link the program dynamically or keep its symbols"
		}
		return []Result{c}
	}
	var checks []Result
	for _, t := range targets {
		checks = append(checks, Result{Name: "source heap", Finding: strings.Join(t.Functions(), ", ") + " in " + t.File.Path})
	}
	return checks
}
