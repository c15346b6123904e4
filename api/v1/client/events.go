package client

import (
	"context"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/httpapi"
)

// Events calls each with the events after the one with number since, and, with
// follow, with those that happen from then on, until ctx ends, the agent stops, or
// each returns an error.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, each func(v1.Event) error) error {
	return httpapi.Stream(ctx, c.peer, fmt.Sprintf("/v1/events?since=%d&follow=%t", since, follow), each)
}
