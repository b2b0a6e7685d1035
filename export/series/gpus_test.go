package series

import (
	"strings"
	"testing"
)

func TestAFileOfGPUsIsASeriesOnlyOfOne(t *testing.T) {
	const header = "time_s,gpu,instance,used_bytes,total_bytes\n"
	for name, c := range map[string]struct{ rows, refused string }{
		"one":           {"1.000,0,,100,900\n2.000,0,,200,900\n", ""},
		"one instance":  {"1.000,0,3,100,900\n2.000,0,3,200,900\n", ""},
		"two":           {"1.000,0,,100,900\n1.000,1,,200,900\n", "line 3: field \"gpu\": the row is of another GPU"},
		"two instances": {"1.000,0,1,100,900\n1.000,0,2,200,900\n", "another GPU, or instance"},
	} {
		file, err := Read(strings.NewReader(header+c.rows), Options{})
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || len(file.Y) != 2 || file.Y[0] != 100 || file.Y[1] != 200 || file.X[1]-file.X[0] != 1 {
			t.Errorf("%s: %+v, %v", name, file, err)
		}
	}
	other, err := Read(strings.NewReader("time_s,gpu,rss_bytes\n1,10,100\n2,20,200\n"), Options{})
	if err != nil || len(other.Y) != 2 {
		t.Errorf("a column of another file that is called gpu: %v", err)
	}
}

func TestOfATimelineTheResidentMemoryIsJudgedUnlessAnotherColumnIsNamed(t *testing.T) {
	const text = "time_s,rss_bytes,tensor_bytes,device_used_bytes,cuda_allocated_bytes,cuda_reserved_bytes,cuda_driver_bytes,pinned_bytes\n1,10,20,30,40,50,60,70\n2,11,21,31,41,51,61,71\n"
	for column, want := range map[string]float64{
		"": 10, "device_used_bytes": 30, "cuda_allocated_bytes": 40, "cuda_reserved_bytes": 50, "cuda_driver_bytes": 60, "pinned_bytes": 70,
	} {
		file, err := Read(strings.NewReader(text), Options{Y: column})
		if err != nil || file.Y[0] != want || file.Y[1] != want+1 {
			t.Errorf("%q: %+v, %v", column, file, err)
		}
	}
}
