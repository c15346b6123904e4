package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/loop"
)

// A policy has an ETag (RFC 9110, section 8.8.3), which changes with each of its values and with
// the layer that a value comes from. A client that sends it back as If-Match changes only the
// policy that it has read; of two concurrent clients, the second is refused.

var errChanged = errors.New("the policy was changed meanwhile, or the container is another one: read it again")

// policyETag returns the ETag of a container's policy.
func policyETag(c v1.Container) string {
	data, err := json.Marshal([]any{c.Runtime, c.ID, c.Policy, c.PolicyFrom})
	if err != nil {
		panic(err) // these types always can be marshalled
	}
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// conditions returns the conditions that a request puts on its change. Errors: badRequestError.
func conditions(r *http.Request) ([]loop.Condition, error) {
	values := r.Header.Values("If-Match")
	if len(values) == 0 {
		return nil, nil
	}
	tags := strings.Split(strings.Join(values, ","), ",")
	for i, tag := range tags {
		tags[i] = strings.TrimSpace(tag)
		if quoted := len(tags[i]) > 2 && strings.HasPrefix(tags[i], `"`) && strings.HasSuffix(tags[i], `"`); !quoted && tags[i] != "*" {
			return nil, &badRequestError{fmt.Errorf("If-Match %q is not the ETag of a policy, with its quotes", tag)}
		}
	}
	return []loop.Condition{func(c v1.Container) error {
		now := policyETag(c)
		for _, tag := range tags {
			if tag == "*" || tag == now {
				return nil
			}
		}
		return errChanged
	}}, nil
}

func (a *API) policy(w http.ResponseWriter, r *http.Request) (any, error) {
	seen, index, err := a.find(r)
	if err != nil {
		return nil, err
	}
	c := seen.Containers[index]
	w.Header().Set("ETag", policyETag(c))
	return v1.ContainerPolicy{ID: c.ID, Name: c.Name, Runtime: c.Runtime, Policy: c.Policy, PolicyFrom: c.PolicyFrom}, nil
}

func (a *API) set(w http.ResponseWriter, r *http.Request) (any, error) {
	change, err := readChange(r)
	if err != nil {
		return nil, err
	}
	wanted, err := conditions(r)
	if err != nil {
		return nil, err
	}
	return tagged(w)(a.agent.Set(r.Context(), r.PathValue("name"), change, wanted...))
}

func (a *API) reset(w http.ResponseWriter, r *http.Request) (any, error) {
	wanted, err := conditions(r)
	if err != nil {
		return nil, err
	}
	return tagged(w)(a.agent.Reset(r.Context(), r.PathValue("name"), wanted...))
}

// tagged returns a function that sets the ETag of a container's policy.
func tagged(w http.ResponseWriter) func(v1.Container, error) (any, error) {
	return func(c v1.Container, err error) (any, error) {
		if err == nil {
			w.Header().Set("ETag", policyETag(c))
		}
		return c, err
	}
}
