package interpreter

import (
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

// maxFrames bounds the frames of all threads.
const maxFrames = 1 << 14

// A Frame is a frame of a Python function.
type Frame struct {
	// Thread is the kernel's ID of the thread that runs it, as the process itself sees it; 0:
	// before 3.11, which does not keep it, and for frames that are not running.
	Thread int
	// Function is its qualified name, before 3.11 its name. Module is the module of its globals;
	// empty if they have no __name__.
	Function, Module, File string
	Line                   int // 0: unknown
	// Locals is the address of localsplus: a pointer for each of Names, to the value or to its
	// cell. The values of the value stack follow. In 3.14 StackRefTags are in the words.
	Locals uint64
	// End is the end of the values: of the value stack, or of the variables while the interpreter
	// keeps the end of the value stack to itself. Values up to StackLimit may be stale.
	End, StackLimit uint64
	Names           []string // of localsplus, in order
	// Object is the PyFrameObject or generator that the frame lies in; 0: the data stack of its
	// thread.
	Object uint64
}

// Frames returns the Python frames that all threads of all interpreters run, the innermost of a
// thread first. Frames that cannot be read are left out.
func (r *Runtime) Frames() ([]Frame, error) {
	reader := &frameReader{reader: r.newReader(), codes: make(map[uint64]*code)}
	kernel := &r.interpreter.Kernel
	threads := 0
	for _, interpreter := range reader.interpreters() {
		thread, ok := reader.pointer(interpreter + uint64(kernel.InterpreterThreads))
		for ; ok && threads < maxThreads; threads++ {
			reader.walk(thread)
			thread, ok = reader.pointer(thread + uint64(kernel.ThreadNext))
		}
	}
	return reader.frames, nil
}

// A frameReader reads frames. It keeps code objects: frames of a recursion have the same.
type frameReader struct {
	*reader
	codes  map[uint64]*code // nil: is none
	frames []Frame
}

// walk appends the frames of a thread state.
func (r *frameReader) walk(thread uint64) {
	kernel := &r.interpreter.Kernel
	at := thread + uint64(kernel.ThreadFrame)
	if indirect := r.version.CFrameCurrentFrame; indirect != cpython.Absent {
		cframe, ok := r.pointer(at)
		if !ok {
			return
		}
		at = cframe + indirect
	}

	id := 0
	if member := r.interpreter.State.NativeThreadID; member != cpython.Absent {
		const maxThreadID = 1 << 22 // PID_MAX_LIMIT
		if word, ok := r.word(thread + member); ok && word <= maxThreadID {
			id = int(word)
		}
	}

	seen := make(map[uint64]bool)
	frame, ok := r.pointer(at)
	for ok && !seen[frame] && len(r.frames) < maxFrames {
		seen[frame] = true
		if f, isPython := r.frame(frame); isPython {
			f.Thread = id
			r.frames = append(r.frames, f)
		}
		frame, ok = r.pointer(frame + uint64(kernel.FrameBack))
	}
}

// frame reads a frame: before 3.11 a PyFrameObject, since then a _PyInterpreterFrame. ok is false
// if it is none, a shim, or has not begun.
func (r *frameReader) frame(address uint64) (f Frame, ok bool) {
	s, kernel := r.version, &r.interpreter.Kernel
	head := r.bytes(address, int(s.FrameLocalsplus))
	if head == nil {
		return Frame{}, false
	}
	at := mem.Word(head, uint64(kernel.FrameCode)) &^ s.StackRefTags
	c := r.codeAt(at)
	if c == nil {
		return Frame{}, false
	}

	owner := byte(cpython.FrameOwnedByThread)
	switch {
	case s.HasFrameObjects():
		f.Object = address
		if !r.is(address, "PyFrame_Type") {
			return Frame{}, false
		}
	default:
		switch owner = head[s.FrameOwner]; owner {
		case cpython.FrameOwnedByThread:
		case cpython.FrameOwnedByGenerator:
			f.Object = address - s.GenIframe
			if !r.isGenerator(f.Object) {
				return Frame{}, false
			}
		case cpython.FrameOwnedByFrameObject:
			f.Object = address - s.FrameData
			if !r.is(f.Object, "PyFrame_Type") {
				return Frame{}, false
			}
		default:
			return Frame{}, false
		}
	}

	instruction := r.instruction(head, at)
	if c.IsIncomplete(instruction) && owner != cpython.FrameOwnedByGenerator {
		return Frame{}, false
	}
	f.Function, f.File, f.Line = c.Function, c.File, c.Line(instruction)
	if name, ok := r.lookup(mem.Word(head, s.FrameGlobals), "__name__", maxGlobals); ok {
		f.Module, _ = r.text(name, maxText)
	}

	f.Names, f.Locals = c.names, address+s.FrameLocalsplus
	f.End = f.Locals + 8*uint64(len(f.Names))
	f.StackLimit = f.End + 8*uint64(c.stacksize)
	if end := r.stackEnd(head, f.Locals); end > f.End && end <= f.StackLimit && end%8 == 0 {
		f.End = end
	}

	return f, true
}

// codeAt returns the code object at an address, nil if there is none.
func (r *frameReader) codeAt(address uint64) *code {
	c, known := r.codes[address]
	if !known {
		c, _ = r.code(address)
		r.codes[address] = c
	}
	return c
}

// instruction returns the byte offset of the instruction that a frame is at. at is its code object.
func (r *frameReader) instruction(head []byte, at uint64) int32 {
	kernel := &r.interpreter.Kernel
	if r.version.HasFrameObjects() {
		return int32(mem.Word32(head, uint64(kernel.FrameInstruction))) * int32(kernel.InstructionScale)
	}
	return int32(mem.Word(head, uint64(kernel.FrameInstruction)) - at - uint64(kernel.CodeBytes))
}

// stackEnd returns the end of the value stack of a frame that has left it in memory, else 0. locals
// is the address of its localsplus.
func (r *frameReader) stackEnd(head []byte, locals uint64) uint64 {
	s := r.version
	switch {
	case s.FrameStackpointer != cpython.Absent:
		return mem.Word(head, s.FrameStackpointer)
	case s.FrameFStacktop != cpython.Absent:
		return mem.Word(head, s.FrameFStacktop)
	case s.FrameStackdepth != cpython.Absent:
		if depth := int32(mem.Word32(head, s.FrameStackdepth)); depth >= 0 {
			return mem.Word(head, s.FrameValuestack) + 8*uint64(depth)
		}
	case s.FrameStacktop != cpython.Absent:
		if top := int32(mem.Word32(head, s.FrameStacktop)); top >= 0 {
			return locals + 8*uint64(top)
		}
	}

	return 0
}

func (r *frameReader) isGenerator(object uint64) bool {
	for _, symbol := range frameTypes {
		if symbol != "PyFrame_Type" && r.is(object, symbol) {
			return true
		}
	}
	return false
}

// frameTypes are the types of objects that have a frame, by name.
var frameTypes = map[string]string{
	"frame": "PyFrame_Type", "generator": "PyGen_Type", "coroutine": "PyCoro_Type",
	"async_generator": "PyAsyncGen_Type",
}

// FrameOf returns the frame of an object of the type "frame", or of a "generator", "coroutine" or
// "async_generator" that has not ended.
func (r *Runtime) FrameOf(object uint64, typeName string) (*Frame, bool) {
	reader := &frameReader{reader: r.newReader(), codes: make(map[uint64]*code)}
	if !reader.is(object, frameTypes[typeName]) {
		return nil, false
	}
	address, ok := reader.frameAddress(object, typeName == "frame")
	if !ok {
		return nil, false
	}

	f, ok := reader.frame(address)
	if !ok {
		return nil, false
	}
	return &f, true
}

// frameAddress returns where the frame of a frame object or of a generator is.
func (r *frameReader) frameAddress(object uint64, isFrame bool) (uint64, bool) {
	s := r.version
	switch {
	case isFrame && s.FrameFrame == cpython.Absent:
		return object, true
	case isFrame:
		frame, ok := r.pointer(object + s.FrameFrame)
		back, known := r.word(frame + s.FrameObject)
		return frame, ok && known && (back == object || frame == object+s.FrameData)
	case s.GenFrame != cpython.Absent:
		return r.pointer(object + s.GenFrame)
	}

	state := r.bytes(object+s.GenFrameState, 1)
	return object + s.GenIframe, state != nil && int8(state[0]) <= int8(s.FrameExecuting)
}
