package process

import "os"

// PageSize is the kernel's, in bytes.
var PageSize = uint64(os.Getpagesize())
