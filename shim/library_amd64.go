package shim

import _ "embed"

//go:embed allocscope_shim_amd64.so
var library []byte
