package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ProxyName is the name of a service's proxy: only one can have it.
func ProxyName(service string) string { return "edge-" + service }

// InstanceName is the name of what an instance is in an engine: only one can have it.
func InstanceName(id string) string { return "edge-" + strings.ReplaceAll(id, ".", "-") }

// ReadProgress reads what an engine says while it imports an image: it answers before
// that is done, and says at the end whether it was.
func ReadProgress(r io.Reader) error {
	for decoder := json.NewDecoder(r); ; {
		var line struct {
			Error string `json:"error"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("import an image: %w", err)
		}
		if line.Error != "" {
			return fmt.Errorf("import an image: %s", line.Error)
		}
	}
}
