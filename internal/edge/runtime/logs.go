package runtime

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// LastWords returns the last line of a container's standard error, empty if there is none. For a
// proxy that cannot listen it returns the reason.
func LastWords(ctx context.Context, api *client.Client, name string) (string, error) {
	logs, err := api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStderr: true, Tail: "10"})
	if err != nil {
		return "", err
	}
	defer logs.Close()
	var said bytes.Buffer
	if _, err := stdcopy.StdCopy(io.Discard, &said, logs); err != nil {
		return "", err
	}
	return lastWords(said.String()), nil
}

// cannotListen matches HAProxy's message about a port that is in use, which precedes its exit
// message.
var cannotListen = regexp.MustCompile(`cannot bind socket[^\n]*`)

func lastWords(text string) string {
	if said := cannotListen.FindAllString(text, -1); len(said) > 0 {
		return said[len(said)-1]
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
