package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/flows"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
)

// The flows of containers whose class is auto: each has a table in the kernel, and taps
// that look at flows. internal/flows has the rest.

// flowKeeper is what remembers flows; *flows.Manager is it.
type flowKeeper interface {
	Keep(numbers []uint16) error
	Keeps(number uint16) bool
	TrustDSCP(number uint16, trust bool) error
	Forget(number uint16) error
	Attach(tap identity.Tap, number uint16) error
	AttachCgroup(path string, number uint16) error
	Live(number uint16, most int, now time.Time) ([]v1.Flow, error)
	Use(flows.Choice) error
	InForce() v1.Classifier
	Close() error
}

// openFlows opens the flows that an earlier agent left at its uplinks, or new ones, and
// shares them with the classifiers.
func openFlows(config Config, watcher *identity.Origins) (flowKeeper, error) {
	var uplinks []int
	for _, u := range config.Uplinks {
		device, err := kernel.LinkByName(u.Name)
		if errors.Is(err, kernel.ErrNoLink) {
			continue // it may come
		}
		if err != nil {
			return nil, err
		}
		uplinks = append(uplinks, device.Index)
	}
	opened, err := identity.OpenFlows(uplinks...)
	if err != nil {
		return nil, fmt.Errorf("this kernel cannot keep flows (weir doctor tells more): %w", err)
	}
	watcher.ShareFlows(opened)
	manager := flows.New(opened)
	return manager, manager.Use(config.Classifier)
}

// takeClassifier has flows judged by another classifier, and returns what has them
// judged by the one before. Errors: ErrRefused; the one before stays in force.
func (a *Agent) takeClassifier(choice flows.Choice) (undo func(), err error) {
	if a.flows == nil {
		return func() {}, nil
	}
	before := a.config.Classifier
	if err := a.flows.Use(choice); err != nil {
		return nil, err
	}
	a.config.Classifier = choice
	return func() {
		a.config.Classifier = before
		if err := a.flows.Use(before); err != nil {
			a.log.Error("go back to the classifier before", "error", err)
		}
	}, nil
}

// looksAtFlows says whether each flow of the container has a class of its own.
func (c *container) looksAtFlows() bool {
	return c.number >= identity.NumberFirst && c.policy().Class == v1.ClassAuto
}

// keepFlows gives tables to the containers whose flows are looked at, and lets go of
// those of others. A failure is told in what those without one show (flowsRefused).
func (a *Agent) keepFlows() {
	if a.flows == nil {
		return
	}
	var numbers []uint16
	for number, c := range a.registry.byNumber {
		if c.looksAtFlows() {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	refused := a.flows.Keep(numbers)
	if refused != nil && a.flowsRefused == nil {
		a.log.Error("classify flows", "error", refused)
	}
	a.flowsRefused = refused
	for _, c := range a.registry.byNumber {
		c.flowsRefused, c.trustRefused = nil, nil
		if c.looksAtFlows() && !a.flows.Keeps(c.number) {
			c.flowsRefused = refused
		}
		if c.looksAtFlows() {
			c.trustRefused = a.flows.TrustDSCP(c.number, policy.TrustsDSCP(c.policy()))
		}
		if seen := c.looksAtFlows() && c.flowsRefused == nil; c.flowsSeen != seen {
			c.flowsSeen = seen
			for i := range c.attachments { // for assignNumbers
				c.attachments[i].assigned = false
			}
		}
		a.keepAnswers(c)
	}
}

// keepAnswers has what a host-mode container is sent count for its flows, where these
// are looked at. Other containers have taps for that.
func (a *Agent) keepAnswers(c *container) {
	want := c.flowsSeen && c.mode == v1.ModeHost && c.CgroupPath != ""
	if !want {
		a.dropAnswers(c)
		return
	}
	if c.answersSeen {
		return
	}
	c.answersRefused = a.flows.AttachCgroup(c.CgroupPath, c.number)
	c.answersSeen, c.answersKnown = c.answersRefused == nil, true
	if c.answersRefused != nil {
		a.log.Debug("look at what a cgroup is sent", "name", c.Name, "error", c.answersRefused)
	}
}

// dropAnswers ends what keepAnswers, or that of an earlier agent, did.
func (a *Agent) dropAnswers(c *container) {
	c.answersRefused = nil
	if c.CgroupPath == "" || c.answersKnown && !c.answersSeen || !c.answersKnown && c.mode != v1.ModeHost {
		return
	}
	err := identity.DetachCgroup(c.CgroupPath)
	if err != nil && !errors.Is(err, kernel.ErrNoCgroup) {
		a.log.Warn("look at what a cgroup is sent no more", "name", c.Name, "error", err)
	}
	c.answersSeen, c.answersKnown = false, true
}

// attachTap makes what passes the tap of a container carry its number, and where its
// flows are looked at their class.
func (a *Agent) attachTap(c *container, at *attachment) error {
	at.flowsRefused = nil
	if a.flows != nil && c.flowsSeen {
		if at.flowsRefused = a.flows.Attach(at.Tap, c.number); at.flowsRefused == nil {
			return nil
		}
		a.log.Debug("classify the flows of a device", "name", c.Name, "interface", at.Interface, "error", at.flowsRefused)
	}
	return a.taps.Attach(at.Tap, c.number)
}

// flowsComplaints say where a container's flows are to be looked at and are not.
func (c *container) flowsComplaints() (reasons []string) {
	switch {
	case c.policy().Class != v1.ClassAuto:
		return nil
	case c.number == 0 && c.obstacle == "":
		return []string{"weir.class is not in force: it has no network"}
	case !c.looksAtFlows():
		return nil // why it is not controlled, or that it is the host, is said elsewhere
	case c.flowsRefused != nil:
		return []string{"its flows are not told apart: " + c.flowsRefused.Error()}
	case c.trustRefused != nil:
		reasons = append(reasons, "its DSCP field is not looked at as asked: "+c.trustRefused.Error())
	}
	if c.answersRefused != nil {
		reasons = append(reasons, "what it is sent does not count for its flows: "+c.answersRefused.Error())
	}
	for _, at := range c.attachments {
		if at.flowsRefused != nil {
			reasons = append(reasons, fmt.Sprintf("its flows through %s are not told apart: %v", at.Interface, at.flowsRefused))
		}
	}
	return reasons
}

// forgetTraffic makes a number one that nothing is known of: its flows, and of which
// class its packets are. To be called before the number is another's, which is not to
// have what was true of its last holder.
func (a *Agent) forgetTraffic(c *container, number uint16) {
	if a.flows != nil {
		if err := a.flows.Forget(number); err != nil {
			a.log.Warn("forget the flows of a container", "name", c.Name, "error", err)
		}
	}
	c.flowsSeen, c.flowsRefused = false, nil
	a.dropAnswers(c)
	for _, s := range c.shares {
		s.classAssigned, s.classRefused = false, nil
		if !s.uplink.installed() {
			continue
		}
		if err := s.uplink.classifier.ForgetClasses(number); err != nil {
			a.log.Warn("forget the classes of a container", "name", c.Name, "error", err)
		}
	}
}
