package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// play shows the scenes, one after the other. A scene lasts until what it announces has
// happened, and a little longer.
func (d *edgeDemo) play(ctx context.Context) error {
	if err := d.deploy(ctx); err != nil {
		return err
	}
	crowd, wanted := 28, 3
	if d.nodes == 1 {
		crowd, wanted = 18, 2
	}
	d.scene("A crowd of 6 users comes to node 1. An instance serves %d: nothing has to change.", edgeMaxUsers)
	d.comes(ctx, 6)
	if err := d.until(ctx, "users are served", func(s edge.Snapshot) bool { return len(s.Services) > 0 && s.Services[0].Users > 0 }); err != nil {
		return err
	}
	d.scene("The crowd grows to %d users. weir-edge starts more instances, where users gain most by them.", crowd)
	d.comes(ctx, crowd)
	if err := d.until(ctx, "there are instances enough", func(s edge.Snapshot) bool { return running(s, "") >= wanted }); err != nil {
		return err
	}
	if d.nodes == 1 {
		return nil
	}
	return d.loseNode(ctx, wanted)
}

// deploy pushes the service into the repository, and deploys it from there.
func (d *edgeDemo) deploy(ctx context.Context) error {
	d.scene("weir-edge push %s --spec shop.json; weir-edge deploy %s. Nodes get the image from the repository, when they need it.", edgeImage, edgeService)
	path, err := d.manager.WriteSpecification(edgeService, d.specification())
	if err != nil {
		return err
	}
	if _, err := d.manager.Run("push", edgeImage, "--spec", path, "--docker", d.cluster.Engines[0].Socket()); err != nil {
		return err
	}
	if _, err := d.manager.Run("deploy", edgeService); err != nil {
		return err
	}
	if d.nodes == 1 {
		return d.until(ctx, "the service answers", func(s edge.Snapshot) bool { return running(s, "") > 0 })
	}
	d.scene("It is to be there for %v %% of the time, which takes two nodes.", edgeAvailability)
	return d.until(ctx, "the service answers on two nodes", func(s edge.Snapshot) bool { return running(s, "") > 1 })
}

// loseNode cuts a node off that has an instance, and not weir-edge, and brings it back.
func (d *edgeDemo) loseNode(ctx context.Context, wanted int) error {
	seen, err := d.manager.Snapshot(ctx)
	if err != nil {
		return err
	}
	victim, name := d.victim(seen)
	if victim < 0 {
		return errors.New("all instances are on the node that manages the swarm, though the service is to outlast a node")
	}
	d.scene("Node %s dies: its cable is pulled. What was there starts elsewhere; users are sent to others at once.", name)
	if err := d.cable(ctx, victim, "down"); err != nil {
		return err
	}
	err = d.until(ctx, "instances enough answer elsewhere", func(s edge.Snapshot) bool { return running(s, name) >= wanted && ready(s) < d.nodes })
	if err != nil {
		return err
	}
	d.scene("Node %s is back. It takes instances again; what is too many ends after a minute without need.", name)
	if err := d.cable(ctx, victim, "up"); err != nil {
		return err
	}
	return d.until(ctx, "the node is ready", func(s edge.Snapshot) bool { return ready(s) == d.nodes })
}

// victim returns a node with an instance that is not the first; -1 without one.
func (d *edgeDemo) victim(s edge.Snapshot) (number int, name string) {
	for i := 1; i < len(d.cluster.Nodes); i++ {
		for _, n := range s.Nodes {
			if n.Address == d.cluster.Nodes[i].Addr.String() && n.Instances > 0 {
				return i, n.Name
			}
		}
	}
	return -1, ""
}

func (d *edgeDemo) cable(ctx context.Context, node int, state string) error {
	if out, err := d.cluster.Host.Command(ctx, "ip", "link", "set", d.cluster.Nodes[node].HostInterface, state).CombinedOutput(); err != nil {
		return fmt.Errorf("set the link of node %d %s: %w: %s", node+1, state, err, out)
	}
	return nil
}

// running returns the number of running instances on other nodes.
func running(s edge.Snapshot, except string) (count int) {
	for _, i := range s.Instances {
		if i.State == "running" && i.Node != except {
			count++
		}
	}
	return count
}

// scene announces what happens.
func (d *edgeDemo) scene(format string, args ...any) {
	d.text = fmt.Sprintf(format, args...)
	d.say("\n%s", d.text)
}

// lookTime is how long a scene is left to be looked at when its end has come.
const lookTime = 3 * time.Second

// until shows pictures until something holds, and a little longer.
func (d *edgeDemo) until(ctx context.Context, what string, holds func(edge.Snapshot) bool) error {
	began := time.Now()
	held := false
	d.watch(ctx, func() bool {
		seen, err := d.manager.Snapshot(ctx)
		held = err == nil && holds(seen)
		return held || time.Since(began) > edgePatience
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !held {
		return fmt.Errorf("wait until %s: not within %v", what, edgePatience)
	}
	d.say("(after %.1f s)", time.Since(began).Seconds())
	for end := time.Now().Add(lookTime); time.Now().Before(end) && ctx.Err() == nil; {
		d.watch(ctx, func() bool { return time.Now().After(end) })
	}
	return ctx.Err()
}

// watch shows a picture each second until done, or ctx ends.
func (d *edgeDemo) watch(ctx context.Context, done func() bool) {
	var next time.Time
	for ctx.Err() == nil && !done() {
		if time.Now().After(next) {
			d.picture()
			next = time.Now().Add(edgePicture)
		}
		wait(ctx, demoPoll)
	}
}

// picture shows the output of `weir-edge top`; on a terminal in the place of the previous one.
func (d *edgeDemo) picture() {
	text, err := d.manager.Run("top", "--once")
	if err != nil {
		text = []byte(err.Error() + "\n") // it may be starting again
	}
	if cmdline.IsTerminal(d.out) {
		fmt.Fprintf(d.out, "\x1b[H\x1b[2J%s\n\n", d.text)
		if d.pageURL != "" {
			fmt.Fprintf(d.out, "Page: %s   Ctrl-C ends and removes everything\n\n", d.pageURL)
		}
	}
	_, _ = io.WriteString(d.out, strings.TrimRight(string(text), "\n")+"\n\n") // a closed pipe ends the demo by SIGPIPE
}
