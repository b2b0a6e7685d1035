// Command images takes the pictures of a report for the documentation; see the script `run` beside
// it.
package main

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"

	"github.com/allocscope/allocscope/export/page/pagetest"
	"github.com/allocscope/allocscope/test/harness"
)

// maxPictureBytes is small: some readers have slow lines, and git keeps every version.
const maxPictureBytes = 400 << 10

// pictures are parts of the report, from one element to another, by their CSS selectors.
var pictures = []struct {
	name, from, to string
}{
	{"report.png", "header.top", "#timeline"},
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: images REPORT FOLDER")
		os.Exit(2)
	}
	harness.Main(func(ctx context.Context) error { return takeAll(ctx, os.Args[1], os.Args[2]) })
}

func takeAll(ctx context.Context, report, folder string) error {
	browser, err := pagetest.Start(ctx)
	if err != nil {
		return err
	}
	defer browser.Close()

	for _, p := range pictures {
		page, err := browser.Open(report, pagetest.View{Width: 1280})
		if err != nil {
			return err
		}
		if err := page.Still("body"); err != nil {
			return err
		}

		picture, err := page.Picture(p.from, p.to)
		if err == nil {
			err = write(filepath.Join(folder, p.name), picture)
		}
		if err != nil {
			return err
		}

		page.Close()
	}
	return nil
}

// write compresses a picture as far as PNG can, and refuses one that is too large.
func write(path string, picture []byte) error {
	decoded, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return fmt.Errorf("read the picture %s: %w", path, err)
	}

	var small bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, decoded); err != nil {
		return fmt.Errorf("compress the picture %s: %w", path, err)
	}
	if small.Len() > maxPictureBytes {
		return fmt.Errorf("the picture %s has %d bytes, more than %d",
			path, small.Len(), maxPictureBytes)
	}

	fmt.Printf("%s: %v, %d bytes\n", path, decoded.Bounds().Size(), small.Len())
	return os.WriteFile(path, small.Bytes(), 0o644)
}
