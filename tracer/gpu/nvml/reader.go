package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
)

// restartReadings is how many readings after it failed NVML is started again.
const restartReadings = 30

// A reader makes readings. Its methods block while NVML's calls do.
type reader struct {
	driver     driver
	version    string
	startError error // why NVML is not running; nil: it is
	wait       int   // readings until NVML is started again
	gpus       []GPU // of the last reading
}

// start starts NVML.
func (r *reader) start() (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicError(panicked)
		}
		if r.startError, r.wait = err, restartReadings; err != nil {
			r.startError = unavailable(err, "/")
		}
	}()

	if err := r.driver.start(); err != nil {
		return err
	}

	r.version = "unknown"
	if version, err := r.driver.version(); err == nil && version != "" {
		r.version = growth.Truncate(growth.Printable(version), maxNameBytes)
	}
	return nil
}

// stop shuts NVML down if it is running.
func (r *reader) stop() {
	defer func() { _ = recover() }() // no reading follows that could report it
	if r.startError == nil {
		r.driver.stop()
	}
}

// read reads all GPUs once.
func (r *reader) read() (reading Reading) {
	defer func() {
		if panicked := recover(); panicked != nil {
			reading = r.failed(panicError(panicked))
		}
	}()

	if r.startError != nil {
		if r.wait--; r.wait > 0 || r.start() != nil {
			return r.failed(r.startError)
		}
	}

	var missing missingParts
	gpus, err := r.readGPUs(&missing)
	if err = errors.Join(err, missing.restart); err != nil {
		r.stop()
		r.startError, r.wait = err, restartReadings
		return r.failed(err)
	}

	r.gpus = gpus
	return Reading{GPUs: gpus, Driver: r.version, Reason: missing.String()}
}

// failed returns a reading without figures, for an error that concerns all GPUs.
func (r *reader) failed(err error) Reading {
	r.gpus = withoutFigures(r.gpus)
	return Reading{GPUs: r.gpus, Driver: r.version, Reason: "read NVML: " + err.Error()}
}

// panicError is the error for a panic of go-nvml, which trusts the driver's answers.
func panicError(panicked any) error {
	return fmt.Errorf("the driver's answer makes no sense: %s",
		growth.Truncate(growth.Printable(fmt.Sprint(panicked)), maxNameBytes))
}

// readGPUs reads every GPU. An error means that none can be read.
func (r *reader) readGPUs(missing *missingParts) ([]GPU, error) {
	count, err := r.driver.count()
	if err != nil {
		return nil, fmt.Errorf("count the GPUs: %w", err)
	}
	if count > maxGPUs {
		missing.addText(fmt.Sprintf("only the first %d GPUs are read", maxGPUs))
	}

	var gpus []GPU
	for index := range min(count, maxGPUs) {
		gpus = append(gpus, r.readGPU(index, missing)...)
	}
	return gpus, nil
}

// readGPU reads a GPU, or the MIG devices of one in MIG mode.
func (r *reader) readGPU(index int, missing *missingParts) []GPU {
	name := deviceName(index, wholeGPU)

	d, err := r.driver.device(index)
	if err != nil {
		missing.add(name, err)
		return r.lastOfGPU(index)
	}

	migMode, err := d.inMIGMode()
	if err != nil && !errors.Is(err, errNotSupported) && !errors.Is(err, errNoFunction) {
		missing.add(name+": MIG mode", err)
	}
	if migMode {
		if gpus := r.readMIGDevices(d, index, missing); len(gpus) > 0 {
			return gpus
		}
	}

	return []GPU{r.readDevice(d, index, wholeGPU, missing)}
}

// readMIGDevices reads the MIG devices of a GPU. Where it returns none, the whole GPU is read
// instead.
func (r *reader) readMIGDevices(d device, index int, missing *missingParts) (gpus []GPU) {
	name := deviceName(index, wholeGPU)

	count, err := d.maxMIGDevices()
	if err != nil {
		missing.add(name+": MIG devices", err)
		return nil
	}
	if count > maxMIGDevices {
		missing.addText(
			fmt.Sprintf("%s: only the first %d MIG devices are read", name, maxMIGDevices))
	}

	for instance := range min(count, maxMIGDevices) {
		migDevice, err := d.migDevice(instance)
		switch {
		case err == nil:
			gpus = append(gpus, r.readDevice(migDevice, index, instance, missing))
		case !errors.Is(err, errNotFound):
			missing.add(deviceName(index, instance), err)
		}
	}
	return gpus
}

// readDevice reads one device.
func (r *reader) readDevice(d device, index, instance int, missing *missingParts) GPU {
	g := GPU{Index: index, Instance: instance}.withoutFigures()
	name := deviceName(index, instance)

	last := r.lastOfDevice(index, instance)
	g.UUID = readText(d.uuid, last.UUID)
	g.Name = readText(d.name, last.Name)

	used, total, err := d.memory()
	switch {
	case err != nil:
		missing.add(name+": memory", err)
	case total > maxGPUBytes || used > total:
		missing.addText(name + ": memory: the driver's figures make no sense")
	default:
		g.Used, g.Total = int64(used), int64(total)
	}

	g.Processes = readProcesses(d, name, g.Total, missing)
	return g
}

// readText reads a name, or returns the last one if there is no answer.
func readText(read func() (string, error), last string) string {
	text, err := read()
	if err != nil {
		return last
	}
	return growth.Truncate(growth.Printable(text), maxNameBytes)
}

// lastOfDevice returns a device of the last reading; the zero value: it was not in it.
func (r *reader) lastOfDevice(index, instance int) GPU {
	for _, g := range r.gpus {
		if g.Index == index && g.Instance == instance {
			return g
		}
	}
	return GPU{}
}

// lastOfGPU returns the devices of a GPU in the last reading, without figures; the whole GPU if
// there were none.
func (r *reader) lastOfGPU(index int) (gpus []GPU) {
	for _, g := range r.gpus {
		if g.Index == index {
			gpus = append(gpus, g.withoutFigures())
		}
	}

	if gpus == nil {
		gpus = []GPU{GPU{Index: index, Instance: wholeGPU}.withoutFigures()}
	}
	return gpus
}

// readProcesses reads the processes with memory on a device with total bytes (growth.Unknown: not
// reported). nil: unavailable.
func readProcesses(d device, name string, total int64, missing *missingParts) []Process {
	entries, err := d.processes(computeList)
	if err != nil {
		missing.add(name+": "+computeList.String(), err)
		return nil
	}
	memory := make(processMemory)
	memory.add(entries)

	for _, list := range []processList{graphicsList, mpsList} {
		entries, err := d.processes(list)
		switch {
		case err == nil:
			memory.add(entries)
		case errors.Is(err, errNotSupported): // a GPU without graphics, or a MIG device
		case list == mpsList && errors.Is(err, errNoFunction): // older drivers have no such list
		default:
			missing.add(name+": "+list.String(), err)
		}
	}

	processes := memory.processes(total)
	if slices.ContainsFunc(processes, func(p Process) bool { return p.Used == growth.Unknown }) {
		missing.addText(name + ": the memory of some processes is not reported")
	}

	if len(processes) > maxProcesses {
		missing.addText(
			fmt.Sprintf("%s: only the %d processes with the most memory are kept", name,
				maxProcesses),
		)
		slices.SortStableFunc(processes,
			func(a, b Process) int { return cmp.Compare(b.Used, a.Used) })
		processes = slices.Clip(processes[:maxProcesses])
		slices.SortFunc(processes, byPID)
	}
	return processes
}

func byPID(a, b Process) int { return cmp.Compare(a.PID, b.PID) }

// processMemory maps a process and a MIG instance (bytes of the key are 0) to bytes, or to
// notAvailable.
type processMemory map[processEntry]uint64

// add adds a list. A process that an earlier list has is the same memory: the larger figure counts.
func (m processMemory) add(entries []processEntry) {
	for _, e := range entries {
		if e.pid == 0 || e.pid > math.MaxInt32 {
			continue // no PID
		}

		key := e
		key.bytes = 0
		if known, ok := m[key]; !ok || known == notAvailable ||
			e.bytes != notAvailable && e.bytes > known {
			m[key] = e.bytes
		}
	}
}

// processes sums up the memory of each process on a device with total bytes. A sum above that is
// growth.Unknown.
func (m processMemory) processes(total int64) []Process {
	limit := uint64(maxGPUBytes)
	if total != growth.Unknown {
		limit = uint64(total)
	}

	sums := make(map[uint32]int64)
	for e, bytes := range m {
		sum := sums[e.pid]
		switch {
		case sum == growth.Unknown:
		case bytes > limit || uint64(sum)+bytes > limit:
			sum = growth.Unknown
		default:
			sum += int64(bytes)
		}
		sums[e.pid] = sum
	}

	processes := make([]Process, 0, len(sums))
	for pid, sum := range sums {
		processes = append(processes, Process{PID: int(pid), Used: sum})
	}
	slices.SortFunc(processes, byPID)
	return processes
}

// maxMissingParts is how many parts the Reason of a reading lists.
const maxMissingParts = 8

// missingParts collects the parts that a reading lacks, with the reason, each once.
type missingParts struct {
	texts     []string
	truncated bool
	restart   error // first error after which NVML must be started again; nil: none
}

// add adds a part that cannot be read for an error.
func (m *missingParts) add(part string, err error) {
	if needsRestart(err) && m.restart == nil {
		m.restart = err
	}

	text := part + ": " + err.Error()
	if errors.Is(err, ErrNoPermission) {
		text += " (run as root on the host)"
	}
	m.addText(text)
}

func (m *missingParts) addText(text string) {
	switch {
	case slices.Contains(m.texts, text):
	case len(m.texts) == maxMissingParts:
		m.truncated = true
	default:
		m.texts = append(m.texts, text)
	}
}

func (m *missingParts) String() string {
	texts := m.texts
	if m.truncated {
		texts = append(slices.Clip(texts), "and more")
	}
	return strings.Join(texts, "; ")
}

// deviceName names a device in a Reason.
func deviceName(index, instance int) string {
	if instance == wholeGPU {
		return fmt.Sprintf("GPU %d", index)
	}
	return fmt.Sprintf("GPU %d, MIG device %d", index, instance)
}
