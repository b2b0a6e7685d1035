package growth

import (
	"encoding/binary"
	"math"
	"testing"
	"time"
)

func FuzzJudgeStacks(f *testing.F) {
	f.Add([]byte{}, int64(0), int64(4e9), uint64(512<<10))
	f.Add([]byte("\x01heap-and-mappings-of-hostile-sizes-and-bins-0123456789"), int64(1e9), int64(3e9), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, from, to int64, interval uint64) {
		trace := []*Snapshot{{}, {Elapsed: 1e9}, {Elapsed: 2e9}, {Elapsed: 4e9, Interval: interval, Bins: []time.Duration{1e9, 2e9, 4e9}}}
		for ; len(data) >= 12; data = data[12:] {
			h := Holding{Stack: &Stack{ID: uint64(data[0] % 8)}, Kind: []Kind{KindHeap, KindMmap}[data[1]%2]}
			h.InuseBytes = int64(int32(binary.LittleEndian.Uint32(data[2:])))
			h.Variance = float64(binary.LittleEndian.Uint32(data[6:])) * float64(interval)
			if at := data[10] % 4; at == 3 && h.Kind == KindHeap {
				h.Births = []Birth{{int(int8(data[11])), float64(h.InuseBytes), h.Variance}}
			}
			trace[data[10]%4].Holdings = append(trace[data[10]%4].Holdings, h)
		}
		for _, got := range JudgeStacks(trace, Window{time.Duration(from), time.Duration(to)}, 1) {
			if !(got.Low <= got.Growth && got.Growth <= got.High && got.Age >= 0 && got.Age <= 1 && got.Score >= 0) || math.IsInf(got.High-got.Low, 0) {
				t.Errorf("%+v", got)
			}
		}
	})
}
