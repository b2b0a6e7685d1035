package export

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/allocscope/allocscope/growth"
)

// onGPU is what a function of train.py holds on a GPU, in bytes.
func onGPU(function string, kind growth.Kind, gpu string, bytes int64) growth.Holding {
	stack := growth.NamedStack(4242, "", "cuMemAlloc_v2", function, "main")
	return growth.Holding{Stack: stack, Kind: kind, GPU: gpu, InuseBytes: bytes, InuseObjects: float64(bytes / 100), AllocObjects: 9, AllocBytes: 9000}
}

// deviceMoment is a snapshot in which the driver counts 10,000 bytes: a leak in blocks, a cache, NCCL, and a rest.
func deviceMoment(at time.Duration, leak int64) *growth.Snapshot {
	s := &growth.Snapshot{
		Elapsed: at, Alive: []int{4242}, Devices: []growth.Device{{PID: 4242, Used: 10_000, Reserved: 6000, Allocated: 5000, BlocksWatched: true}},
		DeviceHoldings: []growth.Holding{
			onGPU("keep", growth.KindCudaBlock, "0", leak), onGPU("batch", growth.KindCudaBlock, "1", 700),
			onGPU("c10::cuda::CUDACachingAllocator::raw_alloc", growth.KindCudaSegment, "0", 6000), onGPU("ncclInit", growth.KindCudaSegment, "0", 1200),
		},
	}
	growth.FillDevices(s)
	return s
}

// deviceCase is a process whose blocks grow by 1000 bytes in a minute.
func deviceCase() DeviceCase {
	track := &growth.Track{Member: growth.Member{Process: growth.Process{PID: 4242, Command: "trainer", Born: -time.Hour}, Traced: true}, Last: time.Minute}
	for second := range 61 {
		s := growth.UnknownSample()
		s.Elapsed, s.CudaAllocated, s.CudaReserved = time.Duration(second)*time.Second, 4000+1000*int64(second)/60, 6000
		track.Timeline = append(track.Timeline, s)
	}
	snapshots := []*growth.Snapshot{deviceMoment(0, 1000), deviceMoment(30*time.Second, 1500), deviceMoment(time.Minute, 2000)}
	j, _ := growth.JudgeDevice(growth.Case{Track: track, DeviceRoom: growth.Unknown, Room: growth.Unknown, Snapshots: snapshots, Criteria: growth.InSeconds().Faster(20)})
	return DeviceCase{Track: track, Judgement: j, Start: snapshots[0], End: snapshots[2], Snapshots: snapshots, Room: 1 << 30, Rows: 10, Culprits: 10, Stacks: 10}
}

func TestADeviceOfTheSummarySaysWhatGrewAndWho(t *testing.T) {
	d := DeviceOf(deviceCase())
	if d.Process != 4242 || d.Command != "trainer" || d.Diagnosis != string(growth.DiagnosisTensors) || d.Judged != DeviceAllocated || *d.RoomBytes != 1<<30 {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(d.Advice, "keep") {
		t.Errorf("advice %q", d.Advice)
	}
	if len(d.Curves) != 2 || d.Curves[1].Name != DeviceAllocated || *d.Curves[1].StartBytes > 4100 || *d.Curves[1].EndBytes < 4900 {
		t.Errorf("curves %+v", d.Curves)
	}
	if len(d.Culprits) != 1 || d.Culprits[0].Bytes != 1000 || len(d.Accumulating) != 1 {
		t.Fatalf("%+v, %+v", d.Culprits, d.Accumulating)
	}
	if a := d.Accumulating[0]; a.Function != "keep" || a.Bytes != 1000 || *a.BytesPerMin != 1000 || !slices.Equal(a.HistoryBytes, []int64{1000, 1500, 2000}) {
		t.Errorf("%+v", a)
	}
	want := []DeviceRow{
		{Kind: growth.KindCudaBefore, StartBytes: 3300, EndBytes: 2300},
		{Kind: growth.KindCudaBlock, GPU: "0", Function: "keep < main", Owner: "other", StartBytes: 1000, EndBytes: 2000},
		{Kind: growth.KindNotAttributed, StartBytes: 2800, EndBytes: 2800},
		{Kind: growth.KindCudaSegment, GPU: "0", Function: "ncclInit < main", Owner: "other", StartBytes: 1200, EndBytes: 1200},
		{Kind: growth.KindCudaCached, StartBytes: 1000, EndBytes: 1000},
		{Kind: growth.KindCudaBlock, GPU: "1", Function: "batch < main", Owner: "other", StartBytes: 700, EndBytes: 700},
	}
	if !reflect.DeepEqual(d.Ledger, want) {
		t.Errorf("ledger\n%+v, want\n%+v", d.Ledger, want)
	}
}

func TestRowsOfADeviceLedgerKeepTheirSumHoweverFewAreKept(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 9))
		var rows []growth.DeviceLedgerRow
		var start, end int64
		kinds := make(map[growth.Kind]int)
		for i := range random.IntN(60) {
			kind := []growth.Kind{growth.KindCudaBlock, growth.KindCudaSegment}[random.IntN(2)]
			r := growth.DeviceLedgerRow{
				PID: 1, Kind: kind, GPU: fmt.Sprint(random.IntN(2)), Start: random.Int64N(1 << 30), End: random.Int64N(1<<30) - 1<<28,
				Stack: growth.NamedStack(1, "", fmt.Sprintf("f%d", i/2)),
			}
			rows = append(rows, r)
			start, end = start+r.Start, end+r.End
		}
		limit := 1 + random.IntN(12)
		for _, r := range DeviceLedgerOf(rows, nil, limit) {
			start, end = start-r.StartBytes, end-r.EndBytes
			kinds[r.Kind]++
		}
		if start != 0 || end != 0 {
			t.Fatalf("seed %d: %d and %d bytes are missing", seed, start, end)
		}
		for kind, n := range kinds {
			if n > limit+1 {
				t.Fatalf("seed %d: %d rows of %s, limit %d", seed, n, kind, limit)
			}
		}
	}
}

func TestAProfileHasTypesOfDeviceMemoryOnlyWhereThereIsSome(t *testing.T) {
	s := deviceMoment(0, 1000)
	p := roundTrip(t, slices.Concat(holdings(), s.DeviceHoldings), info())
	var types []string
	for _, v := range p.SampleType {
		types = append(types, v.Type+"/"+v.Unit)
	}
	const host = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes resident_space/bytes"
	if got := strings.Join(types, " "); got != host+" device_objects/count device_space/bytes device_reserved_space/bytes" {
		t.Errorf("sample types %s", got)
	}
	if p.DefaultSampleType != "resident_space" {
		t.Errorf("default %s", p.DefaultSampleType)
	}
	var sums [8]int64
	for _, sample := range p.Sample {
		device := strings.HasPrefix(sample.Label["kind"][0], "cuda") || sample.Label["kind"][0] == "not_attributed"
		for i, v := range sample.Value {
			sums[i] += v
			if v != 0 && device != (i >= 5) {
				t.Errorf("%v: value %d is %d", sample.Label, i, v)
			}
		}
	}
	var rss int64
	for _, h := range holdings() {
		rss += h.ResidentBytes
	}
	// 10 and 7 blocks, and 12 of NCCL's; torch's segments are in no ledger.
	if want := [3]int64{29, 10_000, 7200}; sums[4] != rss || [3]int64(sums[5:]) != want {
		t.Errorf("sums %v, want %d and %v", sums, rss, want)
	}
	if gpu := p.Sample[slices.IndexFunc(p.Sample, func(s *profile.Sample) bool { return s.Value[6] == 700 })].Label["gpu"]; !slices.Equal(gpu, []string{"1"}) {
		t.Errorf("GPU %v", gpu)
	}
	var file bytes.Buffer
	if err := WriteProfile(&file, s.DeviceHoldings, info()); err != nil {
		t.Fatal(err)
	}
	read, err := ReadProfile(&file)
	if err != nil || len(read.SampleType) != 8 || DropFrames(read) != nil {
		t.Fatal(err)
	}
	for _, sample := range read.Sample {
		if name := sample.Location[0].Line[0].Function.Name; name == "cuMemAlloc_v2" {
			t.Errorf("the driver is the leaf of %v", sample.Label)
		}
	}
}

func TestOldTimelinesReadAsIfNothingWereKnownOfGPUs(t *testing.T) {
	const old = `time_s,rss_bytes,anonymous_bytes,file_bytes,shared_bytes,pss_bytes,private_bytes,swap_bytes,virtual_bytes,threads,` +
		`minor_faults,major_faults,steps,tensors,tensor_bytes,tree_processes,tree_rss_bytes,tree_pss_bytes,tree_private_bytes,available_bytes,swap_free_bytes,` +
		`cgroup_used_bytes,cgroup_limit_bytes,overhead_ppm,heap_probed_permille
1.000,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24
`
	rows, err := ReadTimeline(strings.NewReader(old))
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	s := rows[0].Sample
	if s.DeviceUsed != growth.Unknown || s.CudaAllocated != growth.Unknown || s.CudaReserved != growth.Unknown || s.CudaDriver != growth.Unknown || s.Pinned != growth.Unknown {
		t.Errorf("%+v", s)
	}
	if s.RSS != 1 || s.TensorBytes != 14 || rows[0].Tree.Processes != 15 || rows[0].Price.Probed != 24 {
		t.Errorf("%+v", rows[0])
	}
	processes := "time_s,pid,rss_bytes,anonymous_bytes,file_bytes,shared_bytes,pss_bytes,private_bytes,swap_bytes,virtual_bytes,threads,minor_faults,major_faults," +
		"steps,tensors,tensor_bytes\n1.000,7" + strings.Repeat(",1", 14) + "\n"
	of, err := ReadProcesses(strings.NewReader(processes), nil)
	if err != nil || len(of) != 1 || of[0].PID != 7 || of[0].Pinned != growth.Unknown {
		t.Error(of, err)
	}
	_, err = ReadTimeline(strings.NewReader(strings.Replace(old, "tensor_bytes,", "tensor_bytes,pinned_bytes,", 1)))
	wantError(t, err, "header is")
}

func TestGPUsRoundTrip(t *testing.T) {
	moment := growth.Moment{Elapsed: 1500 * time.Millisecond, GPUs: []growth.GPUSample{
		{Index: 0, Instance: -1, Used: 10, Total: 20, Name: "H100"}, {Index: 1, Instance: 3, Used: growth.Unknown, Total: growth.Unknown, UUID: "MIG-\x1b[1m"},
	}}
	var buf bytes.Buffer
	w, err := NewGPUsWriter(&buf)
	if err == nil {
		err = w.Write(GPURows(moment)...)
	}
	if err != nil || buf.String() != "time_s,gpu,instance,used_bytes,total_bytes\n1.500,0,,10,20\n1.500,1,3,,\n" {
		t.Fatalf("%v\n%s", err, buf.String())
	}
	rows, err := ReadGPUs(&buf)
	if err != nil || !reflect.DeepEqual(rows, GPURows(moment)) {
		t.Errorf("%+v, %v", rows, err)
	}
	_, err = ReadGPUs(strings.NewReader("time_s,gpu\n"))
	wantError(t, err, "read GPUs: line 1")
	gpus := GPUsOf(moment.GPUs)
	if gpus[0].Instance != nil || *gpus[0].UsedBytes != 10 || *gpus[1].Instance != 3 || gpus[1].TotalBytes != nil || strings.Contains(gpus[1].UUID, "\x1b") {
		t.Errorf("%+v", gpus)
	}
}

func TestARateThatIsNotKnownIsAbsentFromACurve(t *testing.T) {
	c := deviceCase()
	c.Judgement.Curves[0].Rate = math.NaN()
	if curves := DeviceOf(c).Curves; curves[0].BytesPerMin != nil || curves[1].BytesPerMin == nil {
		t.Errorf("%+v", curves)
	}
}
