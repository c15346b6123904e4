package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/share/policy"
)

// play shows the scenes, one after the other. A scene lasts until what it announces has
// happened, and a little longer.
func (d *edgeDemo) play(ctx context.Context) error {
	scenes := []func(context.Context) error{d.deployShop, d.crowd, d.deployCamera, d.fillUplinks}
	if d.nodes > 1 {
		scenes = append(scenes, d.moveRefused, d.loseNode)
	}
	for _, scene := range scenes {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

// deploy deploys a service by weir-edge.
func (d *edgeDemo) deploy(name string, document map[string]any) error {
	path, err := d.manager.WriteSpecification(name, document)
	if err != nil {
		return err
	}
	_, err = d.manager.Run("deploy", path)
	return err
}

// deployShop pushes the shop into the repository, and deploys it from there.
func (d *edgeDemo) deployShop(ctx context.Context) error {
	d.scene("weir-edge push %s --spec shop.json; weir-edge deploy %s. Nodes get the image from the repository, when they need it.", edgeImage, edgeService)
	path, err := d.manager.WriteSpecification(edgeService, d.shop())
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
		return d.until(ctx, "the shop answers", func(s edge.Snapshot) bool { return running(s, edgeService, "") > 0 })
	}
	d.scene("The shop is to be there for %v %% of the time, so weir-edge starts it on a second node.", edgeAvailability)
	return d.until(ctx, "the shop answers on two nodes", func(s edge.Snapshot) bool { return running(s, edgeService, "") > 1 })
}

// wanted is how many instances of the shop the large crowd takes.
func (d *edgeDemo) wanted() int { return min(d.nodes+1, 3) }

// crowd lets users come to the shop at the first node, first some and then many.
func (d *edgeDemo) crowd(ctx context.Context) error {
	d.scene("6 users come to the shop at node 1. Its specification allows %d at an instance.", edgeMaxUsers)
	d.shoppers.come(ctx, d.url(0, edgePort), 6)
	served := func(edge.Snapshot) bool { return d.shoppers.lately(time.Second).answers > 0 }
	if err := d.until(ctx, "users are served", served); err != nil {
		return err
	}
	count := edgeMaxUsers*d.wanted() - 2
	d.scene("Now it is %d users, and weir-edge starts more instances.", count)
	d.shoppers.come(ctx, d.url(0, edgePort), count)
	return d.until(ctx, "there are instances enough", func(s edge.Snapshot) bool {
		return running(s, edgeService, "") >= max(d.wanted(), s.Services[0].Instances)
	})
}

// deployCamera deploys the camera and lets its viewers come.
func (d *edgeDemo) deployCamera(ctx context.Context) error {
	seen, err := d.manager.Snapshot(ctx)
	if err != nil {
		return err
	}
	first := ""
	for _, n := range seen.Nodes {
		if n.Address == d.cluster.Nodes[0].Addr.String() {
			first = n.Name
		}
	}
	d.scene("weir-edge deploy camera.json, with the label weir.min=%s. %d viewers come to the node where the camera is, and take what they can get.",
		policy.FormatRate(cameraMinBPS), cameraViewers)
	if err := d.deploy(edgeCamera, d.camera(first)); err != nil {
		return err
	}
	return d.until(ctx, "the viewers have the minimum", func(edge.Snapshot) bool { return d.viewers.keeps(cameraMinBPS, 2*time.Second) })
}

// fillUplinks starts a backup on each node.
func (d *edgeDemo) fillUplinks(ctx context.Context) error {
	d.scene("A backup with weir.weight=1000 starts on each node, and takes what it can get.")
	began := time.Now()
	for node, engine := range d.cluster.Engines {
		_, err := engine.Run(ctx, testbed.RunOptions{
			Name: "backup", Image: edgeVideo, PublishTCP: map[uint16]uint16{backupPort: 80}, Labels: map[string]string{policy.LabelWeight: "1000"},
			Args: []string{"/bin/weir-lab", "traffic", "pages", "--work", "0s", "--workers", "8", "--queue", "8", "--bytes", "50000000"},
		})
		if err != nil {
			return err
		}
		backup := &demoUsers{name: fmt.Sprintf("backup %d", node+1), dial: d.dial}
		backup.come(ctx, d.url(node, backupPort), 4)
		d.backups = append(d.backups, backup)
	}
	const settled = 2 * time.Second
	err := d.until(ctx, "backups fill the uplinks", func(edge.Snapshot) bool {
		least := min(d.backups[0].lately(time.Second).bps, d.backups[len(d.backups)-1].lately(time.Second).bps)
		return least > edgeUplinkBPS/10 && time.Since(began) > settled && d.viewers.keeps(cameraMinBPS, settled)
	})
	if err == nil {
		d.sayShort(&d.viewers, began, "the backups started")
	}
	return err
}

// sayShort says for how long viewers had less than a camera's minimum.
func (d *edgeDemo) sayShort(v *edgeViewers, since time.Time, what string) {
	from, until, least := v.short(cameraMinBPS, since)
	if until == 0 {
		d.tell("Since %s the viewers of the %s have had %v %% of the minimum or more in each second: %s in the worst one.", what, v.name, 100*keptPart, demoRate(least))
		return
	}
	d.tell("The viewers of the %s had less than %v %% of the minimum for %.1f s, until %.1f s after %s: %s in the worst second.",
		v.name, 100*keptPart, (until - from).Seconds(), until.Seconds(), what, demoRate(least))
}

// home returns the node where a service runs.
func (d *edgeDemo) home(s edge.Snapshot, service string) (number int, name string) {
	for _, i := range s.Instances {
		for _, n := range s.Nodes {
			if i.Service != service || i.State != "running" || i.Node != n.Name || n.State == "gone" {
				continue
			}
			for number := range d.cluster.Nodes {
				if n.Address == d.cluster.Nodes[number].Addr.String() {
					return number, n.Name
				}
			}
		}
	}
	return -1, ""
}

// cameraIsAt returns the node where the camera runs now.
func (d *edgeDemo) cameraIsAt(ctx context.Context) (number int, name string, err error) {
	seen, err := d.manager.Snapshot(ctx)
	if err != nil {
		return -1, "", err
	}
	if number, name = d.home(seen, edgeCamera); number < 0 {
		err = errors.New("the camera runs nowhere")
	}
	return number, name, err
}

// moveRefused starts a second camera beside the first one, where its minimum does not fit, and then where it
// does.
func (d *edgeDemo) moveRefused(ctx context.Context) error {
	number, name, err := d.cameraIsAt(ctx)
	if err != nil {
		return err
	}
	d.scene("docker run --name %s --label weir.min=%s on %s, beside the camera: %d viewers come to it.", edgeGarage, policy.FormatRate(cameraMinBPS), name, cameraViewers)
	engine := d.cluster.Engines[number]
	_, err = engine.Run(ctx, testbed.RunOptions{
		Name: edgeGarage, Image: edgeVideo, PublishTCP: map[uint16]uint16{garagePort: 80}, Labels: map[string]string{policy.LabelMin: policy.FormatRate(cameraMinBPS)},
		Args: []string{"/bin/weir-lab", "traffic", "pages", "--work", "0s", "--workers", "64", "--queue", "64", "--bytes", "5000000"},
	})
	if err != nil {
		return err
	}
	d.garage.come(ctx, d.url(number, garagePort), cameraViewers)
	agent := d.clients[d.cluster.Nodes[number].Addr.String()]
	var why []string
	err = d.until(ctx, "the agent refuses its minimum and names a node with room", func(edge.Snapshot) bool {
		why = minimumNotes(ctx, agent, edgeGarage)
		return strings.Contains(strings.Join(why, " "), "has room for it")
	})
	if err != nil {
		return err
	}
	d.tell("The viewers of the %s got %s in the last second.", edgeGarage, demoRate(d.garage.lately(time.Second).bps))
	d.tell("weir explain %s there says of its minimum:", edgeGarage)
	for _, note := range why {
		for _, line := range cmdline.Wrap(note, top.DefaultWidth-4) {
			d.tell("  | %s", line)
		}
	}
	d.scene("docker rm -f %[1]s there, and weir-edge deploy %[1]s.json with the same minimum, so that users reach it at every node: weir-edge chooses where it runs.", edgeGarage)
	began := time.Now()
	if err := engine.Remove(ctx, edgeGarage); err != nil {
		return err
	}
	if err := d.deploy(edgeGarage, d.garage.video()); err != nil {
		return err
	}
	err = d.until(ctx, "it runs elsewhere, and both cameras have their minimums", func(s edge.Snapshot) bool {
		now, _ := d.home(s, edgeGarage)
		return now >= 0 && now != number && d.garage.keeps(cameraMinBPS, 2*time.Second) && d.viewers.keeps(cameraMinBPS, 2*time.Second)
	})
	if err == nil {
		d.sayShort(&d.garage, began, "it was removed")
		d.sayShort(&d.viewers, began, "that")
	}
	return err
}

// minimumNotes returns the notes of an agent on the minimum of a container; none if the agent does not know the container yet.
func minimumNotes(ctx context.Context, agent *client.Client, name string) []string {
	e, err := agent.Explain(ctx, name)
	at := slices.IndexFunc(e.Policy, func(v v1.ExplainedValue) bool { return v.Name == "min" })
	if err != nil || at < 0 {
		return nil
	}
	return e.Policy[at].Notes
}

// loseNode cuts off the node where the camera is, and brings it back.
func (d *edgeDemo) loseNode(ctx context.Context) error {
	number, name, err := d.cameraIsAt(ctx)
	if err != nil {
		return err
	}
	if number == 0 {
		return errors.New("the camera is on the node that manages the swarm, though its rule names the others")
	}
	d.scene("Now %s dies: its cable is pulled.", name)
	began := time.Now()
	if err := d.cable(ctx, number, "down"); err != nil {
		return err
	}
	err = d.until(ctx, "the camera is elsewhere again, with its minimum", func(s edge.Snapshot) bool {
		now, _ := d.home(s, edgeCamera)
		return running(s, edgeService, name) > 0 && ready(s) < d.nodes && now >= 0 && now != number && d.viewers.keeps(cameraMinBPS, 2*time.Second)
	})
	if err != nil {
		return err
	}
	d.sayShort(&d.viewers, began, "the node died")
	d.sayShort(&d.garage, began, "that")
	d.scene("%s is back.", name)
	if err := d.cable(ctx, number, "up"); err != nil {
		return err
	}
	return d.until(ctx, "the node is ready", func(s edge.Snapshot) bool { return ready(s) == d.nodes })
}

func (d *edgeDemo) cable(ctx context.Context, node int, state string) error {
	if out, err := d.cluster.Host.Command(ctx, "ip", "link", "set", d.cluster.Nodes[node].HostInterface, state).CombinedOutput(); err != nil {
		return fmt.Errorf("set the link of node %d %s: %w: %s", node+1, state, err, out)
	}
	return nil
}

// running returns the number of running instances of a service on other nodes.
func running(s edge.Snapshot, service, except string) (count int) {
	for _, i := range s.Instances {
		if i.Service == service && i.State == "running" && i.Node != except {
			count++
		}
	}
	return count
}

// scene announces what happens.
func (d *edgeDemo) scene(format string, args ...any) {
	d.text = fmt.Sprintf(format, args...)
	d.say("\n%s", strings.Join(cmdline.Wrap(d.text, top.DefaultWidth), "\n"))
}

// tell says a result, which stays on a terminal's screen beside the next scenes.
func (d *edgeDemo) tell(format string, args ...any) {
	d.say(format, args...)
	d.told = append(d.told, fmt.Sprintf(format, args...))
}

// lookTime is how long a scene is left to be looked at when its end has come.
const lookTime = 2 * time.Second

// until shows what users get until something holds, and a little longer.
func (d *edgeDemo) until(ctx context.Context, what string, holds func(edge.Snapshot) bool) error {
	began, held := time.Now(), false
	d.watch(ctx, func(s edge.Snapshot) bool {
		held = holds(s)
		return held || time.Since(began) > edgePatience
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !held {
		d.picture()
		return fmt.Errorf("wait until %s: not within %v", what, edgePatience)
	}
	end := time.Now().Add(lookTime)
	d.watch(ctx, func(edge.Snapshot) bool { return time.Now().After(end) })
	if !cmdline.IsTerminal(d.out) {
		d.picture()
	}
	return ctx.Err()
}

// watch shows each second what users get, until done, or ctx ends. Viewers follow the camera.
func (d *edgeDemo) watch(ctx context.Context, done func(edge.Snapshot) bool) {
	next := time.Now().Add(edgePicture)
	for ctx.Err() == nil {
		if seen, err := d.manager.Snapshot(ctx); err == nil { // it may be starting again
			d.seen = seen
			d.follow(ctx, &d.viewers)
			d.follow(ctx, &d.garage)
			if done(seen) {
				return
			}
		}
		if time.Now().After(next) {
			if cmdline.IsTerminal(d.out) {
				d.picture()
			} else {
				fmt.Fprintf(d.out, "%s\n", d.users())
			}
			next = next.Add(edgePicture)
		}
		wait(ctx, edgePoll)
	}
}

// follow sends viewers to the node where their camera is, as a name server does that goes by weir-edge.
func (d *edgeDemo) follow(ctx context.Context, v *edgeViewers) {
	if number, _ := d.home(d.seen, v.name); number >= 0 && v.watched != d.url(number, v.port) {
		v.watched = d.url(number, v.port)
		v.come(ctx, v.watched, cameraViewers)
	}
}

// users says what users have measured in the last second.
func (d *edgeDemo) users() string {
	parts := []string{}
	if d.shoppers.came() {
		parts = append(parts, d.shoppers.requests(edgePicture))
	}
	for _, users := range append([]*demoUsers{&d.viewers.demoUsers, &d.garage.demoUsers}, d.backups...) {
		if users.came() {
			parts = append(parts, users.rates(edgePicture))
		}
	}
	return "users get: " + cmp.Or(strings.Join(parts, "; "), "nothing yet")
}

// picture shows where services run; on a terminal with the scene and what users get, in the place of the
// previous one.
func (d *edgeDemo) picture() {
	if cmdline.IsTerminal(d.out) {
		told := strings.Join(d.told[max(0, len(d.told)-toldLines):], "\n")
		fmt.Fprintf(d.out, "\x1b[H\x1b[2J%s\n\n%s\n\n%s\n", d.text, told, d.users())
		if d.pageURL != "" {
			fmt.Fprintf(d.out, "Page: %s   Ctrl-C ends and removes everything\n", d.pageURL)
		}
	}
	_, _ = io.WriteString(d.out, "\n"+whereabouts(d.seen)+"\n") // a closed pipe ends the demo by SIGPIPE
}

// whereabouts says which nodes are ready, and what runs on them.
func whereabouts(s edge.Snapshot) string {
	text := fmt.Sprintf("%d of %d nodes are ready\n", ready(s), len(s.Nodes))
	for _, n := range s.Nodes {
		var there []string
		for _, i := range s.Instances {
			if i.Node == n.Name {
				there = append(there, i.Service+" "+i.State)
			}
		}
		text += fmt.Sprintf("  %-20s %-8s %s\n", n.Name, n.State, strings.Join(there, ", "))
	}
	return text
}
