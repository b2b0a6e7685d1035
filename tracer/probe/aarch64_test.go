package probe

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The instructions of the tests, as binutils 2.40 encodes them.
const (
	pushFrame      = 0xa9bc7bfd // stp x29, x30, [sp, #-64]!
	jumpIfZero     = 0xb4000320 // cbz x0, .+100
	landingPad     = 0xd503245f // bti c
	signLink       = 0xd503233f // paciasp
	multiplyInto3  = 0x9bc27c23 // umulh x3, x1, x2
	multiplyInto1  = 0x9b027c21 // mul x1, x1, x2
	moveTo3        = 0xaa0003e3 // mov x3, x0
	moveTo0        = 0xaa0303e0 // mov x0, x3
	moveToLink     = 0xaa0303fe // mov x30, x3
	moveToFrame    = 0x910003fd // mov x29, sp
	growStack      = 0xd10043ff // sub sp, sp, #16
	pageAddress    = 0x90000002 // adrp x2, .
	ownAddress     = 0x10000000 // adr x0, .
	jumpIfNegative = 0xb7f80080 // tbnz x0, #63, .+16
	jump           = 0x14000019 // b .+100
	call           = 0x94000019 // bl .+100
	jumpTo16       = 0xd61f0200 // br x16
	callOf3        = 0xd63f0060 // blr x3
	returns        = 0xd65f03c0 // ret
	jumpIfEqual    = 0x54000040 // b.eq .+8
	nothing        = 0xd503201f // nop
	loadLiteral    = 0x58000041 // ldr x1, .+8
	loadExclusive  = 0xc85f7c01 // ldxr x1, [x0]
	systemCall     = 0xd4000001 // svc #0
	returnSigned   = 0xd65f0bff // retaa
	compare        = 0xf100001f // cmp x0, #0
	saveBelow      = 0xf9000bf3 // str x19, [sp, #16]
	storeAndStep   = 0xf8008433 // str x19, [x1], #8
	loadInto3      = 0xf9400843 // ldr x3, [x2, #16]
	loadInto0      = 0xf9400840 // ldr x0, [x2, #16]
	loadAndStep    = 0xf8410c43 // ldr x3, [x2, #16]!
	threadPointer  = 0xd53bd043 // mrs x3, tpidr_el0
	setW1          = 0x320003e1 // orr w1, wzr, #1
	setW2          = 0x528000a2 // mov w2, #5
	choose4        = 0x9a820024 // csel x4, x1, x2, eq
	saveLink       = 0xf9000bfe // str x30, [sp, #16]
	saveFrame      = 0xa900793d // stp x29, x30, [x9]
	savePair       = 0xa9014bf1 // stp x17, x18, [sp, #16]
	barrierOfData  = 0xd503229f // csdb
	yields         = 0xd503203f // yield
	stripLink      = 0xd50320ff // xpaclri
	signWith16     = 0xd503211f // pacia1716
	copyForward    = 0x19010440 // cpyfp [x0]!, [x1]!, x2!
)

func TestChooseSiteAArch64(t *testing.T) {
	const offset = 0x28000
	for name, c := range map[string]struct {
		code     []uint32
		one      int // offset of the site of a function with one argument
		emulated bool
		three    int // with three
		also     bool
	}{
		"glibc's malloc":         {[]uint32{pushFrame, moveToFrame, pageAddress}, 0, false, 0, false},
		"glibc's free":           {[]uint32{jumpIfZero, pushFrame}, 0, true, 0, true},
		"glibc's reallocarray":   {[]uint32{multiplyInto3, multiplyInto1, jumpIfZero}, 8, true, 0, false},
		"landing pad":            {[]uint32{landingPad, jumpIfZero}, 4, true, 4, true},
		"signed link register":   {[]uint32{landingPad, signLink, jumpIfZero}, 0, false, 0, false},
		"scratch":                {[]uint32{moveTo3, compare, choose4, threadPointer, jumpIfEqual}, 16, true, 16, true},
		"argument":               {[]uint32{moveTo0, jump}, 0, false, 0, false},
		"link register":          {[]uint32{moveToLink, jump}, 0, false, 0, false},
		"frame pointer":          {[]uint32{moveToFrame, jump}, 0, false, 0, false},
		"stack pointer":          {[]uint32{growStack, jump}, 0, false, 0, false},
		"second argument":        {[]uint32{setW1, jumpIfNegative}, 4, true, 0, false},
		"third argument":         {[]uint32{setW2, ownAddress}, 4, true, 0, false},
		"address of a page":      {[]uint32{pageAddress}, 0, true, 0, true},
		"call":                   {[]uint32{call}, 0, true, 0, true},
		"indirect jump":          {[]uint32{jumpTo16}, 0, true, 0, true},
		"indirect call":          {[]uint32{callOf3}, 0, true, 0, true},
		"return":                 {[]uint32{returns}, 0, true, 0, true},
		"nop":                    {[]uint32{nothing, returns}, 4, true, 4, true},
		"store":                  {[]uint32{saveBelow, returns}, 4, true, 4, true},
		"store with write-back":  {[]uint32{storeAndStep, returns}, 0, false, 0, false},
		"load":                   {[]uint32{loadInto3, returns}, 4, true, 4, true},
		"load of an argument":    {[]uint32{loadInto0, returns}, 0, false, 0, false},
		"load with write-back":   {[]uint32{loadAndStep, returns}, 0, false, 0, false},
		"literal":                {[]uint32{loadLiteral, pushFrame}, 4, false, 0, false},
		"refused":                {[]uint32{loadExclusive, jump}, 0, false, 0, false},
		"system call":            {[]uint32{systemCall, jump}, 0, false, 0, false},
		"authenticated return":   {[]uint32{returnSigned, jump}, 0, false, 0, false},
		"store of the link":      {[]uint32{saveLink, returns}, 0, false, 0, false},
		"store of the frame":     {[]uint32{saveFrame, returns}, 0, false, 0, false},
		"store of others":        {[]uint32{savePair, returns}, 4, true, 4, true},
		"no instruction":         {[]uint32{0, jump}, 0, false, 0, false},
		"nothing that is jumped": {[]uint32{moveTo3, compare}, 0, false, 0, false},
		"nothing":                {nil, 0, false, 0, false},
	} {
		var code []byte
		for _, word := range c.code {
			code = binary.LittleEndian.AppendUint32(code, word)
		}

		for arguments, want := range map[int]struct {
			at       int
			emulated bool
		}{1: {c.one, c.emulated}, 3: {c.three, c.also}} {
			f := Function{Name: "f", Form: bpf.CallMalloc, Arguments: arguments}
			site := chooseSite(f, elf.EM_AARCH64, code, offset)
			if int(site.Offset)-offset != want.at || site.Emulated != want.emulated ||
				site.Reason == "" || site.Function != f {
				t.Errorf("%s, %d arguments: %+v, want +%d, emulated: %t", name, arguments, site,
					want.at, want.emulated)
			}
		}
	}
}

func TestRefusedAArch64(t *testing.T) {
	for word, want := range map[uint32]bool{
		barrierOfData: true, yields: true, copyForward: true, loadLiteral: true,
		nothing: false, landingPad: false, signLink: false, signWith16: false, stripLink: false,
		savePair: false,
	} {
		if got := refusedAArch64(word); got != want {
			t.Errorf("%#08x: %t, want %t", word, got, want)
		}
	}
}

// No code of arm64 lies there, whatever the symbol table says.
func TestMisalignedAArch64(t *testing.T) {
	const machineOffset = 18
	source := filepath.Join(t.TempDir(), "code.s")
	text := ".globl malloc\n.type malloc,@function\nmalloc: .long 0xd65f03c0, 0xd65f03c0 /* ret */\n"
	tracertest.NoError(t, os.WriteFile(source, []byte(text), 0o600))
	path := source + ".so"
	tracertest.Run(t, "gcc", "-nostdlib", "-shared", "-o", path, source)
	content := tracertest.Must(os.ReadFile(path))(t)
	content[machineOffset] = byte(elf.EM_AARCH64)
	tracertest.NoError(t, os.WriteFile(path, content, 0o600))

	_, file := openBoth(t, path)
	malloc, ok := file.Export("malloc")
	if !ok {
		t.Fatal("malloc is not exported")
	}
	for distance, want := range map[uint64]int{0: 1, 2: 0} {
		var result FileSites
		chosen := siteCollector{
			code: &analyzer{file: file}, taken: make(map[uint64]bool), into: &result,
		}
		_, err := chosen.add(definition{
			function: Function{Name: "malloc", Form: bpf.CallMalloc, Arguments: 1, AlwaysProbed: true},
			names:    []string{"malloc"},
			address:  malloc.Address + distance,
		})
		if err != nil || len(result.Sites) != want || len(result.Unprobed) != 1-want {
			t.Errorf("+%d: %+v, %v", distance, result, err)
		}
	}
}
