package probe

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/uprobe"
)

// The probes of a producer, which OpenTelemetry defines: alloc(pointer, size, weighted_bytes) and
// free(pointer).
const (
	producerProvider = "otel_memory"
	allocProbe       = "alloc"
	freeProbe        = "free"
)

// Bounds of the data read of a process, and of its probes.
const (
	maxProducerFiles  = 4096
	maxProducerPoints = 256
)

// A Producer is a file whose code samples the heap itself, and reports each sampled object by its
// static probes.
type Producer struct {
	// Mapping is the one through which the file is opened.
	Mapping process.Mapping
	// Path is where the kernel finds the very file that was read, until the process is closed.
	Path hostile.HeldPath
	// File is the identity of that file, as its file system has it.
	File process.FileID

	allocs, frees []producerPoint
}

// A producerPoint is a probe of a producer, and how the BPF programs read its arguments.
type producerPoint struct {
	symbol.Probe
	arguments bpf.ProducerProbe
}

func (p producerPoint) isAt(other producerPoint) bool { return p.Offset == other.Offset }

// FindProducers returns the producers that a process has mapped, nil if there are none. It returns
// the first error if there are others whose probes cannot be used.
func FindProducers(p *process.Process, maps []process.Mapping) (producers []Producer, err error) {
	seen, points := make(map[process.FileID]bool), 0
	refuse := func(path string, cause error) {
		if err == nil {
			err = fmt.Errorf("use the %s probes of %s: %w", producerProvider, path, cause)
		}
	}

	for _, m := range maps {
		if !m.Execute || !m.IsFile() || seen[m.File()] || len(seen) == maxProducerFiles {
			continue
		}
		seen[m.File()] = true
		producer, cause := producerIn(p, m)
		if cause != nil {
			refuse(m.Path, cause)
		}
		if producer == nil {
			continue
		}
		more := len(producer.allocs) + len(producer.frees)
		if points+more > maxProducerPoints {
			refuse(m.Path, fmt.Errorf("more than %d in the process", maxProducerPoints))
			continue
		}
		points += more
		producers = append(producers, *producer)
	}

	return producers, err
}

// producerIn returns the producer in a mapped file; nil: it has none, or cannot be read.
func producerIn(p *process.Process, m process.Mapping) (*Producer, error) {
	opened, file, err := openFile(p, m)
	if err != nil {
		return nil, nil //nolint:nilerr // its probes are not known then
	}
	defer opened.Close()

	producer := &Producer{Mapping: m, File: fileID(opened)}
	if err := producer.read(file); err != nil || len(producer.allocs) == 0 {
		return nil, err
	}
	if producer.Path, err = p.Hold(opened); err != nil {
		return nil, err
	}
	return producer, nil
}

// ReadProducer returns the producer in a file that allocscope has written itself. Its path is good
// until the file is closed.
func ReadProducer(opened *hostile.File, file *symbol.File) (*Producer, error) {
	producer := &Producer{
		Mapping: process.Mapping{Path: opened.Name()}, Path: opened.Path(), File: fileID(opened),
	}
	return producer, producer.read(file)
}

func fileID(f *hostile.File) process.FileID {
	return process.FileID{Device: f.Device, Inode: f.Inode}
}

// read finds the probes in a file. Without any that allocate it finds none.
func (p *Producer) read(file *symbol.File) error {
	probes, err := file.Probes(producerProvider)
	if err != nil {
		return err
	}
	for _, found := range probes {
		operands, err := parseOperands(file.Machine(), found.Arguments)
		if err != nil {
			return fmt.Errorf("%s: %w", found.Name, err)
		}

		point := producerPoint{Probe: found}
		switch {
		case slices.ContainsFunc(append(p.allocs, p.frees...), point.isAt):
			// A second note of an instruction would count each event twice.
		case found.Name == allocProbe && len(operands) >= 3:
			point.arguments.Pointer = operands[0]
			point.arguments.Size, point.arguments.Weight = operands[1], operands[2]
			p.allocs = append(p.allocs, point)
		case found.Name == freeProbe && len(operands) >= 1:
			point.arguments.Pointer = operands[0]
			p.frees = append(p.frees, point)
		}
	}

	if len(p.allocs) > 0 && len(p.frees) == 0 {
		return fmt.Errorf("probe %s: not found", freeProbe)
	}
	return nil
}

// Details returns a line for each probe.
func (p Producer) Details() (lines []string) {
	for _, point := range append(p.allocs[:len(p.allocs):len(p.allocs)], p.frees...) {
		lines = append(lines, fmt.Sprintf("%s:%s in %s at file offset %#x",
			producerProvider, point.Name, p.Mapping.Path, point.Offset))
	}
	return lines
}

// A CookieFunc returns the attach cookie of a probe's arguments.
type CookieFunc func(bpf.ProducerProbe) (uint64, error)

// AttachProducer attaches to the probes of a producer, all or none, in a process or, with PID 0, in
// all processes that map the file. Frees come first: of every object that is seen, the free will
// be, too.
func AttachProducer(
	mode Mode, producer Producer, programs Programs, cookie CookieFunc, pid int,
) ([]link.Link, error) {
	return attachAll(producer.Mapping.Path,
		func() ([]link.Link, error) { return AttachFrees(mode, producer, programs, cookie, pid) },
		func() ([]link.Link, error) { return AttachAllocs(mode, producer, programs, cookie, pid) })
}

// AttachLikeProducer attaches the program of a producer's frees to the functions of a file, and to
// their returns the one of AttachReturn. Their process is no producer: both find nothing there.
func AttachLikeProducer(
	mode Mode, file FileSites, programs Programs, pid int,
) ([]link.Link, error) {
	return attachAll(file.Mapping.Path,
		func() ([]link.Link, error) {
			return attachEntries(mode, file, programs, bpf.ProgProducerFree, pid)
		},
		func() ([]link.Link, error) {
			returning := file.only(Function.returns)
			return attachReturns(mode, returning, programs, bpf.ProgCudaOnReturn, pid)
		})
}

// AttachFrees is AttachProducer for the probes of frees.
func AttachFrees(
	mode Mode, producer Producer, programs Programs, cookie CookieFunc, pid int,
) ([]link.Link, error) {
	return producer.attach(
		mode, producer.frees, programs, bpf.ProgProducerFree, cookie, pid)
}

// AttachAllocs is AttachProducer for the probes of allocations.
func AttachAllocs(
	mode Mode, producer Producer, programs Programs, cookie CookieFunc, pid int,
) ([]link.Link, error) {
	return producer.attach(
		mode, producer.allocs, programs, bpf.ProgProducerAlloc, cookie, pid)
}

func (p Producer) attach(
	mode Mode, probes []producerPoint, programs Programs, name string, cookie CookieFunc, pid int,
) ([]link.Link, error) {
	program, err := programs(name)
	if err != nil {
		return nil, err
	}
	order := uprobe.Order{Mode: mode, Kind: uprobe.Entry, PID: pid}
	for _, found := range probes {
		c, err := cookie(found.arguments)
		if err != nil {
			return nil, err
		}
		order.Points = append(order.Points, uprobe.Point{
			Name: found.Name, Offset: found.Offset, Cookie: c, Semaphore: found.Semaphore,
		})
	}
	return uprobe.Attach(order, p.Path, program)
}

// AttachEach attaches a program to each of these probes of a producer's file in all processes that
// map it, by links of their own. It attaches all or none.
func AttachEach(
	mode Mode, producer Producer, probes []symbol.Probe, programs Programs, program string,
) ([]link.Link, error) {
	attached, err := programs(program)
	if err != nil {
		return nil, err
	}
	var steps []func() ([]link.Link, error)
	for _, p := range probes {
		order := uprobe.Order{Mode: mode, Kind: uprobe.Entry, Points: []uprobe.Point{
			{Name: p.Name, Offset: p.Offset, Semaphore: p.Semaphore},
		}}
		steps = append(steps, func() ([]link.Link, error) {
			return uprobe.Attach(order, producer.Path, attached)
		})
	}
	return attachAll(producer.Mapping.Path, steps...)
}
