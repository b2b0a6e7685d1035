package tracer

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

	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
)

// A Check is one thing that a trace needs or can make use of.
type Check struct {
	Name    string
	Finding string
	// Remedy for what is missing; empty if nothing is.
	Remedy string
	// Required: without it nothing can be traced.
	Required bool
}

// Examine tells what would work on this machine, and for a process unless pid is 0. It attaches nothing.
func Examine(pid int) []Check {
	checks := []Check{checkKernel(), checkArchitecture(), checkPrivilege(), checkBTF(), checkTracefs(), checkPIDNamespace()}
	checks = append(checks, checkPrograms(), checkFaults(), checkNVML())
	if pid != 0 {
		return append(checks, checkTarget(pid)...)
	}
	return append(checks, checkOwnPages())
}

func checkKernel() Check {
	c := Check{Name: "kernel", Required: true}
	release, supported, err := Release()
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

func checkArchitecture() Check {
	c := Check{Name: "architecture", Finding: runtime.GOARCH}
	if runtime.GOARCH == "arm64" {
		c.Finding += ": functions are probed at their entries"
	}
	return c
}

func checkPrivilege() Check {
	c := Check{Name: "privilege", Finding: fmt.Sprintf("uid %d", os.Geteuid()), Required: true}
	missing, err := MissingPrivileges()
	switch {
	case err != nil:
		c.Remedy = "run as root: " + err.Error()
	case len(missing) > 0:
		c.Finding += " without " + strings.Join(missing, ", ")
		c.Remedy = "run with sudo"
	}
	return c
}

func checkBTF() Check {
	c := Check{Name: "BTF", Finding: "/sys/kernel/btf/vmlinux", Required: true}
	if _, err := os.Stat(c.Finding); err != nil {
		c.Finding, c.Remedy = err.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF, as distributions' are"
	}
	return c
}

func checkTracefs() Check {
	c := Check{Name: "tracefs", Finding: "mounted"}
	if !TracefsMounted() {
		c.Finding, c.Remedy = "not mounted: source mapping needs it", "trace mounts it by itself; or: mount -t tracefs tracefs "+tracefsPath
	}
	return c
}

func checkPIDNamespace() Check {
	c := Check{Name: "PID namespace", Finding: "the initial one"}
	_, inode, err := pidNamespace()
	switch {
	case err != nil:
		c.Finding, c.Remedy = err.Error(), "mount /proc"
	case inode != 0:
		c.Finding, c.Remedy = "a container's: only its own processes can be traced", "run on the host, or the container with --pid=host"
	}
	return c
}

func checkPrograms() Check {
	c := Check{Name: "BPF programs", Required: true}
	k, err := loadKernel(Config{MaxLive: DefaultMaxLive, MaxStacks: DefaultMaxStacks, MaxFaults: maxFaults})
	if err != nil {
		c.Finding, c.Remedy = err.Error(), "see the line above that is not ok, or --debug"
		return c
	}
	defer k.Close()
	c.Finding = "the kernel takes them; functions are probed by " + k.mode.String()
	return c
}

// checkFaults opens what source fault needs, on the first CPU that is online, and lets go of it.
func checkFaults() Check {
	c := Check{Name: "source fault"}
	cpus, _ := ebpf.PossibleCPU()
	event, err := -1, error(unix.ENODEV)
	for cpu := 0; errors.Is(err, unix.ENODEV) && cpu < max(1, cpus); cpu++ {
		event, err = openFaultCounter(faultPeriod(DefaultInterval), cpu)
	}
	if err != nil {
		c.Finding = fmt.Sprintf("count page faults: %v", err)
		c.Remedy = cmp.Or(eventRemedy(err), "trace without it: --sources heap,mapping,step")
		return c
	}
	unix.Close(event)
	c.Finding = "page faults can be counted"
	return c
}

// checkOwnPages is checkPages where there is no other process to ask for.
func checkOwnPages() Check {
	p, err := process.Open(os.Getpid())
	if err != nil {
		return Check{Name: "ledger", Finding: err.Error(), Remedy: "mount /proc"}
	}
	defer p.Close()
	return checkPages(p)
}

// checkPages asks for the pages of a process, which the ledger is made of.
func checkPages(p *process.Process) Check {
	c := Check{Name: "ledger"}
	pages, err := p.Pages()
	if err == nil {
		defer pages.Close()
		_, err = pages.Runs(nil, 0, 1)
	}
	switch {
	case err != nil:
		c.Finding, c.Remedy = err.Error(), cmp.Or(pagesRemedy(err), "trace without it: what is resident is not told apart")
	case !pages.Scans():
		c.Finding = "the page map is read, without reservations above 64 GiB; pages that only read zeros count"
		c.Remedy = "boot Linux 6.7 or newer, which has PAGEMAP_SCAN"
	default:
		c.Finding = "the page map is scanned"
	}
	return c
}

// pagesRemedy is what to do where the page map cannot be had; empty: that is not known.
func pagesRemedy(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "run as root or grant CAP_SYS_PTRACE"
	case errors.Is(err, os.ErrNotExist):
		return "use a kernel built with CONFIG_PROC_PAGE_MONITOR, as distributions' are"
	}
	return ""
}

// remedyFor writes a remedy behind an error.
func remedyFor(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (" + remedy + ")"
}

func checkTarget(pid int) []Check {
	target := Check{Name: fmt.Sprintf("pid %d", pid), Required: true}
	p, err := process.Open(pid)
	if err != nil {
		target.Finding, target.Remedy = err.Error(), "name a process that can be traced"
		return []Check{target}
	}
	defer p.Close()
	target.Finding = p.Command()
	maps, err := p.Maps()
	if err != nil {
		target.Finding, target.Remedy = err.Error(), "run as root"
		return []Check{target}
	}
	return slices.Concat([]Check{target, checkPages(p)}, checkAllocator(p, maps), checkPython(p, maps))
}

// checkPython says which interpreter there is, if any.
func checkPython(p *process.Process, maps []process.Mapping) []Check {
	found, err := python.Find(p, maps)
	switch {
	case err != nil:
		return []Check{{Name: "python", Finding: err.Error(), Remedy: "native frames alone are shown"}}
	case found != nil:
		return []Check{{Name: "python", Finding: "CPython " + found.Version + " in " + found.Module.Path}}
	}
	return nil
}

func checkAllocator(p *process.Process, maps []process.Mapping) []Check {
	targets, err := probe.Resolve(p, maps)
	if err != nil {
		c := Check{Name: "source heap", Finding: err.Error(), Remedy: "only mappings can be traced"}
		if errors.Is(err, probe.ErrNoAllocator) {
			c.Remedy += "; link the program dynamically or keep its symbols"
		}
		return []Check{c}
	}
	var checks []Check
	for _, t := range targets {
		checks = append(checks, Check{Name: "source heap", Finding: strings.Join(t.Functions(), ", ") + " in " + t.File.Path})
	}
	return checks
}
