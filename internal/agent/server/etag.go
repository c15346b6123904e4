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
	"github.com/weir-project/weir/internal/agent"
)

// A policy has an ETag (RFC 9110, section 8.8.3), which is another one as soon as any of
// its values, or where that comes from, is another. Who sends it back as If-Match
// changes only what they have seen; of two that do, the second one learns of it.

var errChanged = errors.New("somebody else has changed this policy, or the container is another one: look at it again")

// policyETag is that of a container's policy.
func policyETag(c v1.Container) string {
	data, err := json.Marshal([]any{c.Runtime, c.ID, c.Policy, c.PolicyFrom})
	if err != nil {
		panic(err) // these types always can
	}
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// conditions are what a request wants to hold for its change. Errors: badRequestError.
func conditions(r *http.Request) ([]agent.Condition, error) {
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
	return []agent.Condition{func(c v1.Container) error {
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

// tagged passes a container on, with the ETag of its policy.
func tagged(w http.ResponseWriter) func(v1.Container, error) (any, error) {
	return func(c v1.Container, err error) (any, error) {
		if err == nil {
			w.Header().Set("ETag", policyETag(c))
		}
		return c, err
	}
}
