package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// demoFailure is why the show ended early.
type demoFailure struct{ error }

func (e *demoFailure) Unwrap() error { return e.error }

// show plays the scenes and shows them, until ctx or the time given ends, the
// user quits, or something fails.
func (d *demo) show(ctx context.Context) error {
	hints := d.hints()
	d.say("\nWhile it runs, look at it from another terminal:\n\n  %s\n", strings.Join(hints, "\n  "))
	if d.duration > 0 {
		// Not a deadline: a connection made under one fails with an error of its own, shortly before
		// the context says that it has ended.
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(d.duration, cancel).Stop()
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-d.agent.Ended():
			end(&demoFailure{d.agent.EndError()})
		case <-ctx.Done():
		}
	}()

	var view demoView = &plainView{client: d.client, out: d.out}
	if cmdline.IsTerminal(d.out) && cmdline.IsTerminal(os.Stdin) {
		view = newLiveView(d.client, d.out, hints)
	}
	played := make(chan struct{})
	go func() {
		defer close(played)
		err := d.script.play(ctx, d, d.script.sceneTime(d.duration), view.announce)
		if err != nil && ctx.Err() == nil {
			end(&demoFailure{err})
		}
	}()
	err := view.run(ctx)
	end(nil)
	<-played
	var failure *demoFailure
	if errors.As(context.Cause(ctx), &failure) {
		return failure.error
	}
	return err
}

// hints returns commands to look at the demo from outside.
func (d *demo) hints() []string {
	weir := fmt.Sprintf("sudo %s --socket %s", d.binary, d.agentDir().Socket())
	hints := []string{weir + " top", weir + " ps", weir + " set web --weight 50"}
	if d.docker {
		hints = append(hints, fmt.Sprintf("sudo docker -H unix://%s ps", d.engine.Socket()))
	}
	if d.pageURL != "" {
		hints = append(hints, d.pageURL+"   (the dashboard, in a browser on this machine)")
	}
	return hints
}

// demoView shows the scenes' texts and what `weir top` shows.
type demoView interface {
	announce(text string)
	run(context.Context) error
}

// plainView prints a picture every second.
type plainView struct {
	client *client.Client
	out    io.Writer
	mu     sync.Mutex
}

func (v *plainView) print(text string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := io.WriteString(v.out, text)
	return err
}

func (v *plainView) announce(text string) {
	// An output that is gone ends run.
	_ = v.print(strings.Join(cmdline.Wrap("== "+text, top.DefaultWidth), "\n") + "\n\n")
}

func (v *plainView) run(ctx context.Context) error {
	for {
		wait(ctx, time.Second)
		if ctx.Err() != nil {
			return nil
		}
		sample, err := top.Ask(ctx, v.client)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = v.print(top.Render(top.Compute(sample, top.ByStart), top.Window{Width: top.DefaultWidth}) + "\n")
		}
		switch {
		case errors.Is(err, unix.EPIPE):
			return nil // the output is closed
		case err != nil:
			return fmt.Errorf("show: %w", err)
		}
	}
}

// liveView is the live picture of `weir top` below the scene's text.
type liveView struct {
	*top.Model
	out   io.Writer
	hints []string
	text  atomic.Pointer[string]
}

// sceneLines are kept for a scene's text, so that the picture does not jump.
const sceneLines = 3

func newLiveView(client *client.Client, out io.Writer, hints []string) *liveView {
	v := &liveView{Model: top.NewModel(client, top.ByStart, sceneLines+1+1+len(hints)+1), out: out, hints: hints}
	v.announce("")
	return v
}

func (v *liveView) announce(text string) { v.text.Store(&text) }

func (v *liveView) run(ctx context.Context) error {
	return cmdline.Show(ctx, v.out, 200*time.Millisecond, v)
}

// View implements [cmdline.Picture].
func (v *liveView) View() string {
	const bold, normal = "\x1b[1m", "\x1b[0m"
	text := cmdline.Wrap(*v.text.Load(), min(v.Model.Width(), 100))
	for len(text) < sceneLines {
		text = append(text, "")
	}
	lines := []string{bold + strings.Join(text, normal+"\n"+bold) + normal, "", v.Model.View(), "From another terminal:"}
	for _, hint := range v.hints {
		lines = append(lines, "  "+cmdline.Cut(hint, v.Model.Width()-2))
	}
	return strings.Join(lines, "\n") + "\n"
}
