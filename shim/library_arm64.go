package shim

import _ "embed"

//go:embed allocscope_shim_arm64.so
var library []byte
