package growth

// Software has the versions of the software of a process. An empty one is unknown.
type Software struct {
	// Python is the version of CPython, such as "3.11.2", with a "t" if it is free-threaded. Before
	// 3.11 it has no third number.
	Python string `json:"python,omitempty"`
	// Torch is the version of PyTorch, such as "2.5.1+cu124".
	Torch string `json:"torch,omitempty"`
	// Libc is the C library, such as "glibc 2.36".
	Libc string `json:"libc,omitempty"`
	// Malloc is the malloc that takes the place of the C library's, such as "jemalloc".
	Malloc string `json:"malloc,omitempty"`
}
