package nvml

import (
	"errors"
	"fmt"
)

// restartEvery is after how many readings NVML is started again when it was gone.
const restartEvery = 30

// A reader makes readings. Its calls block as NVML's do.
type reader struct {
	driver  driver
	version string
	down    error // why NVML is not started; nil: it is
	wait    int   // readings until it is started again
	known   []GPU // those of the last reading
}

// start starts NVML.
func (r *reader) start() (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = panicOf(panicked)
		}
		if r.down, r.wait = err, restartEvery; err != nil {
			r.down = absence(err, "/")
		}
	}()
	if err := r.driver.start(); err != nil {
		return err
	}
	r.version = "unknown"
	if version, err := r.driver.version(); err == nil && version != "" {
		r.version = printable(version, maxText)
	}
	return nil
}

// stop ends NVML, as far as it runs.
func (r *reader) stop() {
	defer func() { _ = recover() }() // nothing is read any more
	if r.down == nil {
		r.driver.stop()
	}
}

// read asks for everything once.
func (r *reader) read() (reading Reading) {
	defer func() {
		if panicked := recover(); panicked != nil {
			reading = r.without(panicOf(panicked))
		}
	}()
	if r.down != nil {
		if r.wait--; r.wait > 0 || r.start() != nil {
			return r.without(r.down)
		}
	}
	var why reasons
	gpus, err := r.gpus(&why)
	if err = errors.Join(err, why.gone); err != nil {
		r.stop()
		r.down, r.wait = err, restartEvery
		return r.without(err)
	}
	r.known = gpus
	return Reading{GPUs: gpus, Driver: r.version, Reason: why.String()}
}

// without is a reading in which there is nothing but what is known of the GPUs.
func (r *reader) without(err error) Reading {
	r.known = unread(r.known)
	return Reading{GPUs: r.known, Driver: r.version, Reason: "read NVML: " + err.Error()}
}

// panicOf is the error for what go-nvml does about a driver that breaks the rules.
func panicOf(panicked any) error {
	return fmt.Errorf("the driver's answer makes no sense: %s", printable(fmt.Sprint(panicked), maxText))
}

// gpus reads every GPU. An error means that none can be read.
func (r *reader) gpus(why *reasons) ([]GPU, error) {
	count, err := r.driver.count()
	if err != nil {
		return nil, fmt.Errorf("count the GPUs: %w", err)
	}
	if count > maxGPUs {
		why.say(fmt.Sprintf("only the first %d GPUs are read", maxGPUs))
	}
	var gpus []GPU
	for index := range min(count, maxGPUs) {
		gpus = append(gpus, r.gpu(index, why)...)
	}
	return gpus, nil
}

// gpu reads a GPU, or the instances of one in MIG mode.
func (r *reader) gpu(index int, why *reasons) []GPU {
	d, err := r.driver.device(index)
	if err != nil {
		why.add(label(index, whole), err)
		return r.remembered(index)
	}
	divided, err := d.divided()
	if err != nil && !errors.Is(err, errNotSupported) && !errors.Is(err, errNoCall) {
		why.add(label(index, whole)+": MIG mode", err)
	}
	if divided {
		if gpus := r.instances(d, index, why); len(gpus) > 0 {
			return gpus
		}
	}
	return []GPU{r.measure(d, index, whole, why)}
}

// instances reads the instances of a GPU in MIG mode; none: the GPU stands for itself.
func (r *reader) instances(d device, index int, why *reasons) (gpus []GPU) {
	slots, err := d.slots()
	if err != nil {
		why.add(label(index, whole)+": MIG devices", err)
		return nil
	}
	if slots > maxInstances {
		why.say(fmt.Sprintf("%s: only the first %d MIG devices are read", label(index, whole), maxInstances))
	}
	for slot := range min(slots, maxInstances) {
		instance, err := d.instance(slot)
		switch {
		case err == nil:
			gpus = append(gpus, r.measure(instance, index, slot, why))
		case !errors.Is(err, errNotFound):
			why.add(label(index, slot), err)
		}
	}
	return gpus
}

// measure reads one device.
func (r *reader) measure(d device, index, instance int, why *reasons) GPU {
	g := GPU{Index: index, Instance: instance}.unread()
	name := label(index, instance)
	before := r.last(index, instance)
	g.UUID = text(d.uuid, before.UUID)
	g.Name = text(d.name, before.Name)
	used, total, err := d.memory()
	switch {
	case err != nil:
		why.add(name+": memory", err)
	case total > maxBytes || used > total:
		why.say(name + ": memory: the driver's figures make no sense")
	default:
		g.Used, g.Total = int64(used), int64(total)
	}
	g.Processes = processesOf(d, name, g.Total, why)
	return g
}

// text asks for a name; where there is no answer, the one before is kept.
func text(ask func() (string, error), before string) string {
	answer, err := ask()
	if err != nil {
		return before
	}
	return printable(answer, maxText)
}

// last is a device as it was known.
func (r *reader) last(index, instance int) GPU {
	for _, g := range r.known {
		if g.Index == index && g.Instance == instance {
			return g
		}
	}
	return GPU{}
}

// remembered is what is known of a GPU that cannot be read.
func (r *reader) remembered(index int) (gpus []GPU) {
	for _, g := range r.known {
		if g.Index == index {
			gpus = append(gpus, g.unread())
		}
	}
	if gpus == nil {
		gpus = []GPU{GPU{Index: index, Instance: whole}.unread()}
	}
	return gpus
}
