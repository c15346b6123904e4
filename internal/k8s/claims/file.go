package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Driver is the name of the driver of dynamic resource allocation: weir-dra.
const Driver = "weir.dev"

// DefaultFile is the ledger's: in the folder that kubelet gives the driver. The driver writes it,
// weir-k8s reads it when a pod starts.
const DefaultFile = "/var/lib/kubelet/plugins/" + Driver + "/claims.json"

// Load reads a ledger; an empty one if there is no file.
func Load(path string) (Ledger, error) {
	l := Ledger{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the claims: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("read the claims in %s: %w", path, err)
	}
	if l == nil { // the text is "null"
		l = Ledger{}
	}
	return l, nil
}

// Save writes a ledger in place of the one before, so that a reader sees one of the two.
func (l Ledger) Save(path string) error {
	if err := l.save(path); err != nil {
		return fmt.Errorf("write the claims: %w", err)
	}
	return nil
}

func (l Ledger) save(path string) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".claims-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
