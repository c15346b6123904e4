package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// Driver is the name of the driver of dynamic resource allocation: weir-dra.
const Driver = "weir.dev"

// KubeletFolder is kubelet's default --root-dir.
const KubeletFolder = "/var/lib/kubelet"

// Folder returns the folder that kubelet gives the driver. The driver notes in it what the API server says
// of the node's pods; weir-k8s reads that.
func Folder(kubelet string) string { return filepath.Join(kubelet, "plugins", Driver) }

// AnnotationPrefix is what the names of labels begin with as annotations: weir.dev/min is weir.min.
const AnnotationPrefix = "weir.dev/"

// Annotations are the labels of the node's pods by their annotations, by the pods' UIDs. Annotations may have
// changed since a pod started: only the API server tells of that.
type Annotations map[string]map[string]string

// LabelOf returns the label that an annotation stands for; false for an annotation that is not for Weir.
// Those of Kubernetes for bandwidth keep their names.
func LabelOf(annotation string) (label string, ours bool) {
	if key, ours := strings.CutPrefix(annotation, AnnotationPrefix); ours {
		return policy.Prefix + key, true
	}
	return annotation, annotation == policy.LabelKubernetesMax || annotation == policy.LabelKubernetesIn
}

// LabelsOf returns the annotations that are for Weir, by the names of labels.
func LabelsOf(annotations map[string]string) map[string]string {
	labels := map[string]string{}
	for name, value := range annotations {
		if label, ours := LabelOf(name); ours {
			labels[label] = value
		}
	}
	return labels
}

// LedgerFile returns the path of the ledger in the driver's folder.
func LedgerFile(folder string) string { return filepath.Join(folder, "claims.json") }

// AnnotationsFile returns the path of the annotations in the driver's folder.
func AnnotationsFile(folder string) string { return filepath.Join(folder, "annotations.json") }

// RatesFile returns the path, in the driver's folder, of the rates that the node's annotations say, for the agent. It
// stays when weir-dra is removed.
func RatesFile(folder string) string { return filepath.Join(folder, "rates.yaml") }

// SaveRates writes the text of a RatesFile as a ledger is written; an empty text removes the file.
func SaveRates(path, text string) error {
	var err error
	if text == "" {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = Replace(path, []byte(text), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the node's rates: %w", err)
	}
	return nil
}

// Load reads a ledger; an empty one if there is no file.
func Load(path string) (Ledger, error) { return load[Ledger](path, "claims") }

// LoadAnnotations reads annotations; none if there is no file.
func LoadAnnotations(path string) (Annotations, error) {
	return load[Annotations](path, "annotations")
}

func load[M ~map[string]V, V any](path, what string) (M, error) {
	m := M{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", what, err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("read the %s in %s: %w", what, path, err)
	}
	if m == nil { // the text is "null"
		m = M{}
	}
	return m, nil
}

// Save writes a ledger in place of the one before, so that a reader sees one of the two.
func (l Ledger) Save(path string) error { return save(path, "claims", l) }

// Save writes annotations as a ledger is written.
func (a Annotations) Save(path string) error { return save(path, "annotations", a) }

func save(path, what string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		err = Replace(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the %s: %w", what, err)
	}
	return nil
}

// Replace writes text to the disk, and then in place of the file at path, so that a reader sees one of the two.
func Replace(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".weir-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
