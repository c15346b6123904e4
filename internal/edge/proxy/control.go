package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"
)

// Control sends commands to one HAProxy's runtime socket.
type Control struct {
	// Dial connects to it.
	Dial func(context.Context) (net.Conn, error)
	// line is the connection reused between commands; nil opens one per command.
	line *line
}

// UnixControl returns the control of a proxy on this machine.
func UnixControl(path string) Control {
	var dialer net.Dialer
	return Control{Dial: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }}
}

// ErrTooOld says what to do about an HAProxy that takes no servers while it runs: before 2.6 that is
// experimental.
var ErrTooOld = errors.New("HAProxy is older than 2.6: install a newer one " +
	"(Ubuntu 22.04: add-apt-repository ppa:vbernat/haproxy-2.8 && apt-get install haproxy=2.8.*; Debian 12 has 2.6)")

const (
	askTimeout = 2 * time.Second
	// maxAnswerBytes bounds an answer; a server's row has some 500 bytes.
	maxAnswerBytes = 8 << 20
)

// Status returns the statistics ("show stat").
func (c Control) Status(ctx context.Context) (Status, error) {
	text, err := c.ask(ctx, "show stat")
	if err != nil {
		return Status{}, err
	}
	seen, err := parseStat(text)
	if c.line != nil && seen.ends {
		c.line.leave()
	}
	return seen, err
}

// Apply changes the proxy's servers to those of ports and returns how many users removed instances
// still have. It is idempotent.
func (c Control) Apply(ctx context.Context, ports []Port) (leaving int, err error) {
	seen, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	commands, leaving := plan(ports, seen.Servers)
	for _, command := range commands {
		if err := c.do(ctx, command); err != nil {
			// HAProxy refuses to delete a server with an idle pooled connection; the next Apply
			// retries it.
			if strings.HasPrefix(command, "del server ") {
				continue
			}
			return leaving, err
		}
	}
	return leaving, nil
}

// do sends a changing command. HAProxy answers nothing or a success message; any other answer is an
// error.
func (c Control) do(ctx context.Context, command string) error {
	answer, err := c.ask(ctx, command)
	if err != nil {
		return err
	}
	switch answer = strings.TrimSpace(answer); {
	case answer == "", answer == "New server registered.", answer == "Server deleted.",
		strings.HasPrefix(command, "set server ") && changedAddress.MatchString(answer):
		return nil
	case strings.Contains(answer, "experimental mode"):
		return ErrTooOld
	default:
		return fmt.Errorf("send the proxy %q: it answers %q", command, answer)
	}
}

// changedAddress matches HAProxy's answer when it has changed a server's address.
var changedAddress = regexp.MustCompile(`^(IP changed from|no need to change the addr|port changed from)`)

func (c Control) ask(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if c.line != nil {
		return c.line.ask(ctx, c.Dial, command)
	}
	conn, err := c.Dial(ctx)
	if err != nil {
		return "", fmt.Errorf("reach the proxy: %w", err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", fmt.Errorf("reach the proxy: %w", err)
	}
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", fmt.Errorf("send the proxy %q: %w", command, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswerBytes))
	if err != nil {
		return "", fmt.Errorf("read the proxy's answer to %q: %w", command, err)
	}
	if len(answer) == maxAnswerBytes {
		return "", errors.New("the proxy's answer is too long")
	}
	return string(answer), nil
}
