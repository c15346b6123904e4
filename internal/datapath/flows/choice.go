package flows

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/identity"
)

// Choice is a classifier that was read and found fit for the kernel. The zero value is
// the one that weir comes with, as it is; it is read when the first container needs it,
// so that agents without such containers have no memory for it.
type Choice struct {
	classifier *identity.FlowClassifier
	about      v1.Classifier
}

// builtIn is what users see of the classifier that weir comes with.
const builtIn = "built-in"

// maxFileBytes bounds what the agent reads: the largest classifier that the kernel has
// room for takes a tenth of that.
const maxFileBytes = 32 << 20

// Load reads the classifier at path, "" for the one that weir comes with, with other
// levels (appid.Levels.Override) and another least confidence, nil for its own. Errors:
// a file that is not there, cut off, no classifier, or of what the kernel cannot do.
func Load(path string, levels []string, minConfidence *float64) (Choice, error) {
	if path == "" && len(levels) == 0 && minConfidence == nil {
		return Choice{}, nil
	}
	model, sum, err := read(path)
	if err != nil {
		return Choice{}, err
	}
	if err := model.Levels.Override(levels); err != nil {
		return Choice{}, err
	}
	if minConfidence != nil {
		model.MinConfidence = *minConfidence
	}
	choice, err := choose(model)
	if err != nil {
		return Choice{}, fmt.Errorf("%s: %w", orBuiltIn(path), err)
	}
	choice.about.Source, choice.about.SHA256, choice.about.Levels = orBuiltIn(path), sum, slices.Clone(levels)
	return choice, nil
}

func read(path string) (*appid.Model, string, error) {
	if path == "" {
		model, err := appid.Shipped()
		return model, "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("read classifier: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read classifier: %w", err)
	case len(data) > maxFileBytes:
		return nil, "", fmt.Errorf("read classifier: %s is larger than %d bytes: is it one that weir classify train wrote?", path, maxFileBytes)
	}
	model, err := appid.Read(bytes.NewReader(data))
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, "", fmt.Errorf("%s: %w: the file is cut off: write it again (weir classify train)", path, err)
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	return model, hex.EncodeToString(sum[:]), nil
}

// choose is a model as the kernel walks it, and what users see of it.
func choose(model *appid.Model) (Choice, error) {
	classifier, err := Classifier(model)
	if err != nil {
		return Choice{}, err
	}
	return Choice{classifier: &classifier, about: v1.Classifier{
		Source: builtIn, MinConfidence: model.MinConfidence,
		Data: model.Card.Data, Flows: model.Card.Flows, Groups: model.Card.Groups, Nodes: len(classifier.Nodes),
	}}, nil
}

func orBuiltIn(path string) string {
	if path == "" {
		return builtIn
	}
	return path
}

// same says whether two choices are one classifier.
func (c Choice) same(other Choice) bool {
	if c.classifier == nil || other.classifier == nil {
		return c.classifier == other.classifier
	}
	return c.about.Source == other.about.Source && c.about.SHA256 == other.about.SHA256 &&
		c.about.MinConfidence == other.about.MinConfidence && slices.Equal(c.about.Levels, other.about.Levels)
}
