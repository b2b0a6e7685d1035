// Package numpy has what NumPy lays out in memory. Names follow its sources.
package numpy

// Members of PyArrayObject_fields and PyArray_Descr, in bytes, which are the same in 1.x and 2.x.
//
// https://github.com/numpy/numpy/blob/v2.0.0/numpy/_core/include/numpy/ndarraytypes.h
const (
	ArrayData  = 16 // PyArrayObject_fields.data
	ArrayBase  = 48 // base: the object that owns the data
	ArrayDescr = 56 // descr
	ArrayFlags = 64 // flags
	DescrKind  = 24 // PyArray_Descr.kind

	ArrayOwnData = 4   // NPY_ARRAY_OWNDATA: the array itself owns the data
	KindObject   = 'O' // NPY_OBJECTLTR: each item refers to an object
)
