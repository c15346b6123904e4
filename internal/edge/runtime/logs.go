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

// LastWords is the last line that a container has written to its standard error; "" for
// none. Of a proxy's that cannot listen it is why.
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

// cannotListen is what HAProxy says of a port that another program has, before it says that
// it ends.
var cannotListen = regexp.MustCompile(`cannot bind socket[^\n]*`)

func lastWords(text string) string {
	if said := cannotListen.FindAllString(text, -1); len(said) > 0 {
		return said[len(said)-1]
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
