//go:build cgo

package nvml

//go:generate ./names.sh

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "bind.h"
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// A binding is a library that is mapped, and stays, with the calls of go-nvml led to it.
type binding struct{ handle unsafe.Pointer }

// bind maps a library.
func bind(path string) (*binding, error) {
	runtime.LockOSThread() // the text of an error is the thread's
	defer runtime.UnlockOSThread()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_LAZY)
	if handle == nil {
		text := C.GoString(C.dlerror())
		if strings.Contains(text, "cannot open shared object file: No such file") {
			return nil, ErrNoLibrary
		}
		return nil, fmt.Errorf("%w: %s", ErrLibrary, printable(text, 2*maxText))
	}
	C.bind_nvml(handle)
	return &binding{handle}, nil
}

// has tells whether the library has a name.
func (b *binding) has(name string) bool {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.dlsym(b.handle, text) != nil
}
