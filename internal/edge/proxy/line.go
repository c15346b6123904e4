package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// # Lines
//
// HAProxy ends a connection with its answer, unless it is asked to go on ("prompt"). On a
// swarm a connection is TLS over a network that may be full, which takes three round trips
// and packets that must not be lost. So it is kept: a line. An answer ends with a prompt for
// each command.
//
// A line would stay with a proxy that is to end while another one takes its place, and keep
// it. So it is hung up when the proxy says that it ends, and when it is idle.

const (
	// lineIdle is the time after which an idle connection is closed.
	lineIdle = 3 * time.Second
	prompt   = "\n> "
)

// line is a persistent connection to HAProxy. The zero value is not connected.
type line struct {
	mu     sync.Mutex
	conn   net.Conn
	reader *bufio.Reader
	// idle is the timer that closes an idle connection; nil while it is in use.
	idle *time.Timer
}

// Lasting returns a control whose copies share one persistent connection.
func (c Control) Lasting() Control {
	c.line = &line{}
	return c
}

// ask sends a command over the open connection, and over a new one if that has failed.
func (l *line) ask(ctx context.Context, dial func(context.Context) (net.Conn, error), command string) (answer string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline, _ := ctx.Deadline()
	if l.conn != nil {
		answer, err = l.talk(deadline, command)
		// HAProxy has not read the command if it ended before answering, so it can be sent again.
		if answer != "" || err == nil || isTimeout(err) {
			return answer, err
		}
	}
	if l.conn, err = dial(ctx); err != nil {
		l.conn = nil
		return "", fmt.Errorf("reach the proxy: %w", err)
	}
	l.reader = bufio.NewReader(l.conn)
	if _, err = l.talk(deadline, "prompt"); err != nil {
		return "", err
	}
	return l.talk(deadline, command)
}

// talk sends one command and reads its answer; on an error it closes the connection. l.mu is held.
func (l *line) talk(deadline time.Time, command string) (answer string, err error) {
	l.inUse()
	defer func() {
		if err != nil {
			l.hangUp()
			return
		}
		var idle *time.Timer
		idle = time.AfterFunc(lineIdle, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.idle == idle { // else it is in use again
				l.hangUp()
			}
		})
		l.idle = idle
	}()
	if err := l.conn.SetDeadline(deadline); err != nil {
		return "", fmt.Errorf("reach the proxy: %w", err)
	}
	if _, err := io.WriteString(l.conn, command+"\n"); err != nil {
		return "", fmt.Errorf("send the proxy %q: %w", command, err)
	}
	var text bytes.Buffer
	for range 1 + strings.Count(command, ";") {
		if err := readAnswer(l.reader, &text); err != nil {
			return text.String(), fmt.Errorf("read the proxy's answer to %q: %w", command, err)
		}
	}
	return text.String(), nil
}

// readAnswer reads an answer up to the prompt, which it drops.
func readAnswer(from *bufio.Reader, to *bytes.Buffer) error {
	for {
		part, err := from.ReadSlice(prompt[len(prompt)-1])
		to.Write(part)
		switch {
		case err == nil && bytes.HasSuffix(to.Bytes(), []byte(prompt)):
			to.Truncate(to.Len() - len(prompt))
			return nil
		case to.Len() > maxAnswerBytes:
			return errors.New("it is too long")
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// inUse stops the idle timer. l.mu is held.
func (l *line) inUse() {
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
}

// leave closes the connection unless a command is in progress.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
}

// hangUp closes the connection if there is one. l.mu is held.
func (l *line) hangUp() {
	l.inUse()
	if l.conn != nil {
		l.conn.Close()
		l.conn, l.reader = nil, nil
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
