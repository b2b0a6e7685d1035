package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// create makes a file that was not there before, whatever it is that is there.
func (f *Folder) create(dir *os.Root, base string) (*os.File, error) {
	file, err := dir.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, fileMode)
	if err != nil {
		return nil, err
	}
	if err := f.owner.give(file); err != nil {
		_ = file.Close()
		_ = dir.Remove(base)
		return nil, err
	}
	return file, nil
}

// replace writes a file beside its place and moves it there.
func (f *Folder) replace(dir *os.Root, base string, write func(io.Writer) error) error {
	temporary := temporaryName(base)
	file, err := f.create(dir, temporary)
	if f.earlier && errors.Is(err, fs.ErrExist) { // of one who was killed
		if err = dir.Remove(temporary); err == nil {
			file, err = f.create(dir, temporary)
		}
	}
	if err != nil {
		return err
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = dir.Rename(temporary, base)
	}
	if err != nil {
		_ = dir.Remove(temporary)
	}
	return err
}

// An appendedFile names itself in its errors.
type appendedFile struct {
	name string
	file *os.File
}

func (a *appendedFile) Write(data []byte) (int, error) {
	n, err := a.file.Write(data)
	if err != nil {
		err = fmt.Errorf("write %s: %w", a.name, cause(err))
	}
	return n, err
}

func (a *appendedFile) Close() error {
	err := a.file.Sync()
	if closed := a.file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", a.name, cause(err))
	}
	return nil
}

// cause is why a system call failed, without the path of a temporary file or of a directory that is open already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
