/* A library that keeps Python's objects in static variables, as extension modules do. It is loaded with ctypes.PyDLL.
 */
#include <stddef.h>

typedef struct _object PyObject; /* of Python.h, which not every machine has */
extern PyObject *PyList_New(ptrdiff_t);
extern int PyList_Append(PyObject *, PyObject *);
extern void Py_IncRef(PyObject *);

static PyObject *kept;
static struct {
	const char *name;
	PyObject *object;
} table[64];

/* Appends an object to a list that only C knows, and returns the list. */
PyObject *keep(PyObject *object)
{
	if (!kept)
		kept = PyList_New(0);
	PyList_Append(kept, object);
	Py_IncRef(kept);
	return kept;
}

void enter(int index, PyObject *object)
{
	Py_IncRef(object);
	table[index].name = "entry";
	table[index].object = object;
}

const char *name_of(int index)
{
	return table[index].object ? table[index].name : NULL;
}
