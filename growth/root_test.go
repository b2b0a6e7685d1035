package growth

import "testing"

func TestIsOwnFrame(t *testing.T) {
	for _, function := range []string{
		RootUnclassified, FramesLeftOut, "[unknown]+0x1f", (&Stack{}).LostFrame().Function,
		(&Stack{Truncated: TruncatedUnknown}).LostFrame().Function,
		(&Stack{Truncated: TruncatedLimit.String() + ", " + TruncatedPythonMemory.String()}).
			TruncatedFrame().Function,
	} {
		if !IsOwnFrame(function) {
			t.Errorf("%s is not known", function)
		}
	}
	for _, function := range []string{
		"", "main", "[main]", "[file: /x]", "[truncated: secret]", "[stack not kept: no frame pointer, x]",
	} {
		if IsOwnFrame(function) {
			t.Errorf("%s is no frame of allocscope", function)
		}
	}
}
