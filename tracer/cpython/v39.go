package cpython

var v39 = v38.with(func(v *Version) {
	v.Minor = 9
	v.FirstExport = "PyFrame_GetBack"

	// https://github.com/python/cpython/blob/v3.9.0/Include/cpython/object.h
	v.HTQualname = 856
	v.HTCachedKeys = 864
})
