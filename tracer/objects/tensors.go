package objects

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/growth/census"
	"github.com/allocscope/allocscope/tracer/objects/torch"
)

// tensorTypes are the types of PyTorch's tensors from which all others are derived.
var tensorTypes = map[string]bool{
	"torch.Tensor": true, "torch._C.TensorBase": true, "torch._C._TensorBase": true,
}

const maxTensors = 1 << 20 // that are read

// noteTensor keeps the address of an object if it is a tensor.
func (c *counter) noteTensor(object uint64, t *typeInfo) {
	if t.isTensor && len(c.tensors) <= maxTensors {
		c.tensors = append(c.tensors, object)
	}
}

// readTensors reads the tensors whose objects were counted. They are not known where only a share
// of the memory was read: how many storages there are does not follow from some of the tensors, as
// several may refer to one.
func (c *counter) readTensors() error {
	of := &c.result.Tensors
	of.InCPPOnly = -1
	switch {
	case !torch.Loaded(c.heap.memory.maps):
		of.Unknown = census.NoTorch
		return nil
	case c.share < 1:
		of.Unknown = "only a part of the memory of small objects was read"
		return nil
	case len(c.tensors) > maxTensors:
		of.Unknown = fmt.Sprintf("there are more than %d", maxTensors)
		return nil
	}

	tensors, err := torch.Read(c.heap.process, c.tensors)
	switch {
	case errors.Is(err, torch.ErrNotLoaded), errors.Is(err, torch.ErrUnknownLayout):
		of.Unknown = err.Error()
		return nil
	case err != nil:
		return err
	}
	of.Groups, c.result.Storages = torch.Groups(tensors.Known)
	return nil
}
