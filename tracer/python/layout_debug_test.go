package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// debugTable is a table of plausible offsets, each another.
func debugTable(minor int) []byte {
	table := make([]byte, debugSize)
	copy(table, debugCookie)
	put := func(position, value int) { binary.LittleEndian.PutUint64(table[position:], uint64(value)) }
	put(8, 3<<24|minor<<16|4<<8|0xf0)
	at := debugVersions[minor]
	fields := reflect.ValueOf(at)
	for i := range fields.NumField() {
		put(int(fields.Field(i).Int()), 800+8*i)
	}
	put(at.objectType, 8)
	put(at.name, 120)
	put(at.qualifiedName, 128)
	put(at.lineTable, 136)
	return table
}

func TestEveryOffsetComesFromItsPlaceInTheTable(t *testing.T) {
	for minor, at := range debugVersions {
		l, err := parseDebugOffsets(debugTable(minor))
		if err != nil {
			t.Fatal(err)
		}
		fields := reflect.ValueOf(at)
		for i := range fields.NumField() {
			name, position := fields.Type().Field(i).Name, int(fields.Field(i).Int())
			if name == "objectType" || strings.HasSuffix(name, "ame") || name == "lineTable" {
				continue // need not be believed when changed alone
			}
			table := debugTable(minor)
			binary.LittleEndian.PutUint64(table[position:], 8000)
			changed, err := parseDebugOffsets(table)
			if err != nil || *changed == *l {
				t.Errorf("3.%d: %s changes nothing, %v", minor, name, err)
			}
		}
	}
}

func TestADamagedTableOfOffsetsIsRefused(t *testing.T) {
	for minor, at := range debugVersions {
		fields := reflect.ValueOf(at)
		for i := range fields.NumField() {
			name, position := fields.Type().Field(i).Name, int(fields.Field(i).Int())
			for _, value := range []uint64{maxOffset + 1, 1 << 16, 1<<16 + 8, 1 << 32, 1<<64 - 1, 1<<64 - 8, 13} {
				if name == "frameOwner" && value == 13 || name == "bytesData" && value == 13 {
					continue // of bytes, which can be anywhere
				}
				table := debugTable(minor)
				binary.LittleEndian.PutUint64(table[position:], value)
				_, err := parseDebugOffsets(table)
				if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("offset %d at %d of the table", value, position)) {
					t.Errorf("3.%d: %s %#x: %v", minor, name, value, err)
				}
			}
		}
	}
}

func TestATableOfImpossibleCodeObjectsIsRefused(t *testing.T) {
	for minor, at := range debugVersions {
		for position, value := range map[int]uint64{at.bytes: 8, at.qualifiedName: 200, at.lineTable: 200, at.objectType: 24} {
			table := debugTable(minor)
			binary.LittleEndian.PutUint64(table[position:], value)
			if l, err := parseDebugOffsets(table); !errors.Is(err, ErrUnsupported) {
				t.Errorf("3.%d: %d at %d: %+v, %v", minor, value, position, l, err)
			}
		}
	}
}

func TestATableThatCannotBeReadIsAnError(t *testing.T) {
	for _, size := range []int{0, 8, debugHeaderSize - 1, debugHeaderSize, debugSize - 1} {
		l, err := readDebugLayout(fakeMemory{0x1000, debugTable(13)[:size]}, 0x1000)
		if l != nil || err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("of %d bytes: %+v, %v", size, l, err)
		}
	}
	if l, err := readDebugLayout(fakeMemory{0x1000, make([]byte, debugHeaderSize)}, 0x1000); l != nil || err != nil {
		t.Errorf("without a cookie: %+v, %v", l, err)
	}
}

// Whatever the table says: an offset that is believed is in bounds, and so is what is computed from it.
func FuzzDebugOffsets(f *testing.F) {
	for minor := range debugVersions {
		f.Add(debugTable(minor))
		f.Add(bytes.Repeat([]byte{0xff}, debugSize))
		f.Add(debugTable(minor)[:100])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table := make([]byte, debugSize)
		copy(table, data)
		l, err := parseDebugOffsets(table)
		if err != nil {
			if l != nil || !errors.Is(err, ErrUnsupported) {
				t.Errorf("%+v, %v", l, err)
			}
			return
		}
		for _, of := range []any{l.kernel, l.code} {
			fields := reflect.ValueOf(of)
			for i := range fields.NumField() {
				name, field := fields.Type().Field(i).Name, fields.Field(i)
				if field.Kind() == reflect.Uint16 && field.Uint() > maxOffset+16 && name != "ThreadFrameIndirect" {
					t.Errorf("%s is %d", name, field.Uint())
				}
			}
		}
		if l.code.Minor != 13 && l.code.Minor != 14 || l.code.FirstTraceable > l.kernel.CodeBytes {
			t.Errorf("%+v", l)
		}
		if _, err := ReadCode(fakeMemory{0, data}, 0, l.code); err == nil && len(data) < 100 {
			t.Errorf("a code object in %d bytes", len(data))
		}
	})
}
