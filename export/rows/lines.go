package rows

import "io"

// FirstLines is a reader of the first lines of R. It ends after Left of them.
type FirstLines struct {
	R    io.Reader
	Left int
}

// Read reads the rest of these lines.
func (f *FirstLines) Read(buf []byte) (int, error) {
	if f.Left == 0 {
		return 0, io.EOF
	}

	n, err := f.R.Read(buf)
	for i, c := range buf[:n] {
		if c != '\n' {
			continue
		}
		if f.Left--; f.Left == 0 {
			return i + 1, nil
		}
	}

	return n, err
}
