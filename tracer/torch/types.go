package torch

import "fmt"

// A scalarType is an element type of
// https://github.com/pytorch/pytorch/blob/main/c10/core/ScalarType.h.
type scalarType struct {
	name string // of the dtype; empty: quantized
	size int64  // bytes
}

// scalarTypes are the values of c10::ScalarType. The values are the same in all versions.
var scalarTypes = [...]scalarType{
	{"uint8", 1},
	{"int8", 1},
	{"int16", 2},
	{"int32", 4},
	{"int64", 8},
	{"float16", 2},
	{"float32", 4},
	{"float64", 8},
	{"complex32", 4},
	{"complex64", 8},
	{"complex128", 16},
	{"bool", 1},
	{"", 0},
	{"", 0},
	{"", 0}, // qint8, quint8, qint32
	{"bfloat16", 2},
	{"", 0},
	{"", 0}, // quint4x2, quint2x4
	{"bits1x8", 1},
	{"bits2x4", 1},
	{"bits4x2", 1},
	{"bits8", 1},
	{"bits16", 2},
	{"float8_e5m2", 1},
	{"float8_e4m3fn", 1},
	{"float8_e5m2fnuz", 1},
	{"float8_e4m3fnuz", 1},
	{"uint16", 2},
	{"uint32", 4},
	{"uint64", 8},
	{"uint1", 1},
	{"uint2", 1},
	{"uint3", 1},
	{"uint4", 1},
	{"uint5", 1},
	{"uint6", 1},
	{"uint7", 1},
	{"int1", 1},
	{"int2", 1},
	{"int3", 1},
	{"int4", 1},
	{"int5", 1},
	{"int6", 1},
	{"int7", 1},
	{"float8_e8m0fnu", 1},
	{"float4_e2m1fn_x2", 1},
	{"bcomplex32", 4},
}

// A device is a c10::Device: its DeviceType and index, -1 for none.
type device struct{ kind, index int8 }

// Values of DeviceType.
const (
	cpu  = 0
	cuda = 1
	meta = 14
)

// deviceTypes are the names by DeviceType, of
// https://github.com/pytorch/pytorch/blob/main/c10/core/DeviceType.h.
var deviceTypes = [...]string{
	"cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan", "metal",
	"xpu", "mps", "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone",
}

const privateUse1Before = 19 // before MTIA had this value, in 2.1

func deviceAt(memory []byte) device { return device{int8(memory[0]), int8(memory[1])} }

// deviceOf returns device_opt_ of a TensorImpl, which follows data_type_, and whether it has a
// value.
func (l *layout) deviceOf(impl []byte) (d device, engaged bool) {
	option := impl[l.dataType+2:][:3]
	flag, value := option[2], option[:2]
	if l.engagedFirst {
		flag, value = option[0], option[1:]
	}
	return deviceAt(value), flag == 1
}

func (d device) valid() bool {
	return d.kind >= 0 && int(d.kind) < len(deviceTypes) && d.index >= -1
}

// name returns the device as PyTorch prints it; empty: not known.
func (d device) name(l *layout) string {
	if l.engagedFirst && d.kind >= privateUse1Before {
		return ""
	}
	if d.index < 0 {
		return deviceTypes[d.kind]
	}
	return fmt.Sprintf("%s:%d", deviceTypes[d.kind], d.index)
}
