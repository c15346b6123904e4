package apps

import (
	"bytes"
	_ "embed" // for the built-in classifier
)

//go:embed default.json
var shipped []byte

// Shipped returns the built-in classifier, documented in docs/classifier.md.
func Shipped() (*Model, error) { return Read(bytes.NewReader(shipped)) }
