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
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Choice is a classifier that was read and checked against the kernel's limits. The zero value is
// the built-in classifier, which is read when the first container needs it: agents without such
// containers have no memory for it.
type Choice struct {
	classifier *identity.FlowClassifier
	about      v1.Classifier
}

// builtIn is the name that users see for the built-in classifier.
const builtIn = "built-in"

// maxFileBytes bounds the size of a classifier file. The largest classifier that the kernel can
// hold takes a tenth of it.
const maxFileBytes = 32 << 20

// Load reads the classifier at path, or the built-in one for "", with other class levels
// (apps.Levels.Override) and another minimum confidence; nil keeps its own. Errors: a file that is
// missing, truncated or no classifier; a classifier beyond the kernel's limits.
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

func read(path string) (*apps.Model, string, error) {
	if path == "" {
		model, err := apps.Shipped()
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
	model, err := apps.Read(bytes.NewReader(data))
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, "", fmt.Errorf("%s: %w: the file is cut off: write it again (weir classify train)", path, err)
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.Sum256(data)
	return model, hex.EncodeToString(sum[:]), nil
}

// choose converts a model for the kernel, and describes it for users.
func choose(model *apps.Model) (Choice, error) {
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

// same reports whether two choices are the same classifier.
func (c Choice) same(other Choice) bool {
	if c.classifier == nil || other.classifier == nil {
		return c.classifier == other.classifier
	}
	return c.about.Source == other.about.Source && c.about.SHA256 == other.about.SHA256 &&
		c.about.MinConfidence == other.about.MinConfidence && slices.Equal(c.about.Levels, other.about.Levels)
}
