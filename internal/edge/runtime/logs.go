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

// maxLogBytes limits what is read of a container's last lines, which have any length.
const maxLogBytes = 64 << 10

// LastWords returns the last line of a container's standard error, empty if there is none. For a
// proxy that cannot listen it returns the reason.
func LastWords(ctx context.Context, api *client.Client, name string) (string, error) {
	logs, err := api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStderr: true, Tail: "10"})
	if err != nil {
		return "", err
	}
	defer logs.Close()
	var said bytes.Buffer
	_, err = stdcopy.StdCopy(io.Discard, &said, io.LimitReader(logs, maxLogBytes))
	if err != nil && said.Len() == 0 { // it may end in the middle
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
