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
// it. So it is hung up when the proxy says that it ends, and when nobody uses it.

const (
	// lineIdle is after how long a line is hung up that nobody uses.
	lineIdle = 3 * time.Second
	prompt   = "\n> "
)

// line is a connection that is kept. The zero value is none yet.
type line struct {
	mu     sync.Mutex
	conn   net.Conn
	reader *bufio.Reader
	// idle hangs up a line that nobody uses; nil while somebody does.
	idle *time.Timer
}

// Lasting is a control that keeps its connection, with all copies of it.
func (c Control) Lasting() Control {
	c.line = &line{}
	return c
}

// ask asks over the connection that there is, and over a new one if that is gone.
func (l *line) ask(ctx context.Context, dial func(context.Context) (net.Conn, error), command string) (answer string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline, _ := ctx.Deadline()
	if l.conn != nil {
		answer, err = l.talk(deadline, command)
		// A proxy that has ended has not read it.
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

// talk is one command and its answer, after which the line is as before, or hung up. l.mu is
// held.
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
			if l.idle == idle { // else somebody was faster
				l.hangUp()
			}
		})
		l.idle = idle
	}()
	if err := l.conn.SetDeadline(deadline); err != nil {
		return "", fmt.Errorf("reach the proxy: %w", err)
	}
	if _, err := io.WriteString(l.conn, command+"\n"); err != nil {
		return "", fmt.Errorf("tell the proxy %q: %w", command, err)
	}
	var text bytes.Buffer
	for range 1 + strings.Count(command, ";") {
		if err := readAnswer(l.reader, &text); err != nil {
			return text.String(), fmt.Errorf("read the proxy's answer to %q: %w", command, err)
		}
	}
	return text.String(), nil
}

// readAnswer reads up to a prompt, which is not a part of the answer.
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

// inUse stops the clock of a line that nobody uses. l.mu is held.
func (l *line) inUse() {
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
}

// leave hangs up when no command is on its way.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUp()
}

// hangUp ends a connection, if there is one. l.mu is held.
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
