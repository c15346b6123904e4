package config

import (
	"fmt"
	"os"

	"github.com/weir-project/weir/internal/apps"
)

// LoadClassifier reads a classifier from the file at path, or returns the built-in one if path
// is empty.
func LoadClassifier(path string) (*apps.Model, error) {
	if path == "" {
		return apps.Shipped()
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read classifier: %w", err)
	}
	defer file.Close()
	m, err := apps.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}
