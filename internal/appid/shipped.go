package appid

import (
	"bytes"
	_ "embed" // the classifier that weir comes with
)

//go:embed default.json
var shipped []byte

// Shipped is the classifier that Weir comes with; docs/classifier.md is its
// card.
func Shipped() (*Model, error) { return Read(bytes.NewReader(shipped)) }
