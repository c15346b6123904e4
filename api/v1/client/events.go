package client

import (
	"context"
	"fmt"

	v1 "github.com/weir-project/weir/api/v1"

	"github.com/weir-project/weir/api/v1/transport"
)

// Events calls each with the events after number since. If follow is set, it continues with
// new events until ctx ends, the agent stops, or each returns an error.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, each func(v1.Event) error) error {
	return transport.Stream(ctx, c.peer, fmt.Sprintf("/v1/events?since=%d&follow=%t", since, follow), each)
}
