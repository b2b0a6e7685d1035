package cpython

var v310 = v39.with(func(v *Version) {
	v.Minor = 10
	v.FirstExport = "PyIter_Send"

	v.FrameInstruction = 96
	v.LastiUnit = 2

	v.LineForm = Linetable310

	// https://github.com/python/cpython/blob/v3.10.0/Objects/obmalloc.c
	v.PoolSize = 16384

	// https://github.com/python/cpython/blob/v3.10.0/Include/cpython/object.h
	v.HTQualname = 864
	v.HTCachedKeys = 872

	// https://github.com/python/cpython/blob/v3.10.0/Include/funcobject.h
	v.FuncGlobals = 16
	v.FuncQualname = 40
	v.FuncCode = 48
	v.FuncDefaults = 56
	v.FuncKwdefaults = 64
	v.FuncClosure = 72
	v.FuncDict = 88
	v.FuncModule = 104

	// https://github.com/python/cpython/blob/v3.10.0/Include/cpython/frameobject.h
	v.FrameFStacktop = Absent
	v.FrameStackdepth = 80
	v.FrameGen = 88
	v.FrameLocalsplus = 352
})
