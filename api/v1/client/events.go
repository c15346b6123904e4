package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	v1 "github.com/weir-project/weir/api/v1"
)

// Events calls each with the events after the one with number since, and, with
// follow, with those that happen from then on, until ctx ends, the agent stops, or
// each returns an error.
func (c *Client) Events(ctx context.Context, since uint64, follow bool, each func(v1.Event) error) error {
	path := fmt.Sprintf("/v1/events?since=%d&follow=%t", since, follow)
	response, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var event v1.Event
		err := decoder.Decode(&event)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read the agent's events: %w", err)
		}
		if err := each(event); err != nil {
			return err
		}
	}
}
