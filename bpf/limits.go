package bpf

// MaxFrames is the largest number of frames in a stack (MAX_FRAMES in types.h).
const MaxFrames = len(KernelStack{}.Frames)
