package python

import (
	"debug/elf"
	"fmt"

	"golang.org/x/arch/x86/x86asm"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// loopFunction is the evaluation loop, exported by every version.
const loopFunction = "_PyEval_EvalFrameDefault"

// maxLoop bounds the code of the loop that is looked at, in bytes. The largest seen has 90 KiB.
const maxLoop = 4 << 20

// maxPieces is what the kernel side takes.
const maxPieces = len(bpf.KernelPython{}.Loop)

// findLoop gives the pieces of the evaluation loop as addresses of the process: compilers move away what they think is
// rarely run. .symtab names those pieces; in a stripped file they are where jumps of the loop lead.
func findLoop(file *symbol.File, bias uint64) (ranges [maxPieces]bpf.KernelCodeRange, err error) {
	function, ok := file.Export(loopFunction)
	if !ok {
		return ranges, fmt.Errorf("%w: %s is not exported (a modified build?)", ErrUnsupported, loopFunction)
	}
	main := symbol.Piece{Start: function.Address, End: function.Address + min(function.Size, maxLoop)}
	if function.Size == 0 {
		main, _ = file.Piece(function.Address)
	}
	pieces := append([]symbol.Piece{main}, file.ColdPieces(loopFunction)...)
	if len(pieces) == 1 && file.Machine() == elf.EM_X86_64 {
		pieces = followJumps(file, main)
	}
	if len(pieces) > maxPieces {
		return ranges, fmt.Errorf("%w: its evaluation loop is in more than %d pieces", ErrUnsupported, maxPieces)
	}
	for i, p := range pieces {
		ranges[i] = bpf.KernelCodeRange{Start: p.Start + bias, End: p.End + bias}
	}
	return ranges, nil
}

// followJumps finds the pieces of a function that jumps lead to, from one to the next; one more than can be used at most.
func followJumps(file *symbol.File, main symbol.Piece) []symbol.Piece {
	pieces := []symbol.Piece{main}
	for i := 0; i < len(pieces) && len(pieces) <= maxPieces; i++ {
		code, _, err := file.Code(pieces[i].Start, int(min(pieces[i].End-pieces[i].Start, maxLoop)))
		if err != nil {
			continue
		}
		for target := range jumpTargets(code, pieces[i].Start) {
			if p, ok := file.Piece(target); ok && p.Inner && !overlaps(pieces, p) {
				pieces = append(pieces, p)
			}
		}
	}
	return pieces
}

func overlaps(pieces []symbol.Piece, p symbol.Piece) bool {
	for _, other := range pieces {
		if p.Start < other.End && other.Start < p.End {
			return true
		}
	}
	return false
}

// jumpTargets gives the addresses outside of x86-64 code to which it jumps directly. What cannot be decoded is passed over
// by the byte: a target that comes of it is no piece of a function, but by a great chance.
func jumpTargets(code []byte, start uint64) map[uint64]bool {
	targets := make(map[uint64]bool)
	for at := 0; at < len(code); {
		instruction, err := x86asm.Decode(code[at:], 64)
		if err != nil || instruction.Len == 0 {
			at++
			continue
		}
		at += instruction.Len
		distance, direct := instruction.Args[0].(x86asm.Rel)
		if instruction.Op == x86asm.CALL || !direct {
			continue
		}
		if to := int64(at) + int64(distance); to < 0 || to >= int64(len(code)) {
			targets[start+uint64(to)] = true
		}
	}
	return targets
}
