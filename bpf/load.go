package bpf

import (
	"errors"
	"reflect"

	"github.com/cilium/ebpf"
)

// Load loads a spec of LoadKernel into the kernel. A program that the caller has deleted from the
// spec, because the kernel lacks its kind or has a better one, is nil in Programs.
// LoadKernelObjects and LoadAndAssign fail in that case.
//
// The errors are those of ebpf.NewCollectionWithOptions.
func Load(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions) (*Objects, error) {
	collection, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, err
	}
	defer collection.Close() // closes what has not been assigned

	var objects Objects
	err = errors.Join(collection.Assign(&objects.Maps), collection.Assign(&objects.Variables))
	if err != nil {
		_ = objects.Close()
		return nil, err
	}

	programs := reflect.ValueOf(&objects.Programs).Elem()
	for i := range programs.NumField() {
		name := programs.Type().Field(i).Tag.Get("ebpf")
		programs.Field(i).Set(reflect.ValueOf(collection.DetachProgram(name)))
	}

	return &objects, nil
}
