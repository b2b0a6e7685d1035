package tracer

// AskedNVML tells whether NVML has been asked for.
func (s *Session) AskedNVML() bool { return s.gpus.nvml.Started }
