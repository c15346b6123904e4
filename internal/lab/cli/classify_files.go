package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/lab/train"
)

func mapKeys[V any](m map[string]V) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// readFlows reads tables of flows and captures; labelled asks for tables with
// labels. Of a capture that is cut off it returns the flows up to there with the
// error.
func readFlows(stdin io.Reader, paths []string, labelled bool) ([]*flow.Flow, error) {
	var all []*flow.Flow
	for _, path := range paths {
		flows, err := readFlowFile(stdin, path, labelled)
		all = append(all, flows...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
	}
	return all, nil
}

func readFlowFile(stdin io.Reader, path string, labelled bool) ([]*flow.Flow, error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	buffered := bufio.NewReaderSize(in, 1<<16)
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unzip: %w", err)
		}
		buffered = bufio.NewReaderSize(unzipped, 1<<16)
	}
	head, _ := buffered.Peek(4)
	if !train.IsCapture(head) {
		return train.ReadTable(buffered, apps.Types, labelled)
	}
	if labelled {
		return nil, fmt.Errorf("this is a capture, whose flows have no labels: give a table of flows with app_type, or use 'weir classify label'")
	}
	return train.ReadCapture(buffered)
}

func writeFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}
