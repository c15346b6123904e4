package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/share/policy"
)

// Annotations of a node: its first uplink's rates. Those of another one end with a dot and its name.
const (
	annotationRate   = claims.AnnotationPrefix + "rate"
	annotationInRate = claims.AnnotationPrefix + "in-rate"
)

// eventRateRefused is the reason of an event of the node.
const eventRateRefused = "WeirRateRefused"

// nodeRates passes the annotations of the node on to the agent: in a file, which an agent that starts reads, too, and
// which it is told to read again. What is wrong changes nothing, and is an event of the node.
type nodeRates struct {
	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
	recorder record.EventRecorder
	file     string
	log      *slog.Logger
	// saved is the file's text, tried the one that was tried last, with the uplinks that the agent had then and the fault.
	saved, tried string
	uplinks      []string
	fault        string
	last         emitted
}

func newNodeRates(nodeName, folder string, kube kubernetes.Interface, recorder record.EventRecorder, wake func(), log *slog.Logger) (*nodeRates, error) {
	n := &nodeRates{recorder: recorder, file: claims.RatesFile(folder), log: log}
	text, err := os.ReadFile(n.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the node's rates: %w", err)
	}
	n.saved = string(text)
	n.tried = n.saved
	n.factory = informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(stripNode),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + nodeName }))
	n.informer = n.factory.Core().V1().Nodes().Informer()
	_, err = n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() },
		UpdateFunc: func(before, after any) {
			if !reflect.DeepEqual(before, after) {
				wake()
			}
		},
	})
	if err == nil {
		err = n.informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			log.Warn("cannot watch this node; trying again", "error", err, "hint", rightsHint)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("watch this node: %w", err)
	}
	return n, nil
}

// stripNode keeps the rates, the extended resource, and what names the node.
func stripNode(object any) (any, error) {
	n, is := object.(*core.Node)
	if !is {
		return object, nil
	}
	annotations := maps.Clone(n.Annotations)
	maps.DeleteFunc(annotations, func(name, _ string) bool { return !strings.HasPrefix(name, claims.AnnotationPrefix) })
	kept := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, Annotations: annotations}}
	kept.Status.Capacity, kept.Status.Allocatable = onlyEgress(n.Status.Capacity), onlyEgress(n.Status.Allocatable)
	return kept, nil
}

// start watches the node until the returned function is called.
func (n *nodeRates) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	n.factory.Start(ctx.Done())
	return func() {
		cancel()
		n.factory.Shutdown()
	}
}

// get returns the node; nil if the API server has not told of it, or has none of this name.
func (n *nodeRates) get() *core.Node {
	for _, object := range n.informer.GetStore().List() {
		if found, is := object.(*core.Node); is {
			return found
		}
	}
	return nil
}

// apply puts the rates of the node's annotations into force at an agent that shares uplinks, the first one first.
func (n *nodeRates) apply(ctx context.Context, agent *client.Client, shared []v1.MeasuredUplink, now time.Time) {
	node := n.get()
	if node == nil {
		return
	}
	var uplinks []string
	for i := range shared {
		uplinks = append(uplinks, shared[i].Name)
	}
	text, err := ratesText(node.Annotations, uplinks)
	switch {
	case err != nil:
		n.tried, n.fault = n.saved, err.Error()
	case text == n.saved:
		n.tried, n.fault = text, ""
	case text != n.tried || !slices.Equal(uplinks, n.uplinks):
		n.tried, n.uplinks, n.fault = text, uplinks, ""
		if err := n.change(ctx, agent, text); err != nil {
			if refused, is := errors.AsType[*client.Error](err); !is || refused.Status != http.StatusConflict {
				n.log.Warn("cannot pass the node's rates on to the agent; trying again", "error", err)
				n.tried = n.saved
				return
			}
			n.fault = fmt.Sprintf("the agent refuses the annotations %s: %v", strings.Join(rateNames(node.Annotations), ", "), err)
		}
	}
	n.report(node, now)
}

// report says as an event of the node why its rates are not in force, once, and while that lasts each eventInterval.
func (n *nodeRates) report(node *core.Node, now time.Time) {
	if n.fault == "" {
		n.last = emitted{}
		return
	}
	if fault := (event{eventRateRefused, n.fault + "; the node's rates stay as they were"}); n.last.event != fault || now.Sub(n.last.at) > eventInterval {
		n.log.Warn(fault.message)
		n.recorder.Event(node, core.EventTypeWarning, fault.reason, fault.message)
		n.last = emitted{fault, now}
	}
}

// change writes the file and has the agent read it. Rates that the agent refuses are taken back: with them it would not
// start again.
func (n *nodeRates) change(ctx context.Context, agent *client.Client, text string) error {
	before := n.saved
	if err := n.write(text); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	done, err := agent.Reload(ctx)
	if err != nil {
		return errors.Join(err, n.write(before))
	}
	n.log.Info("the node's annotations have changed rates", "changes", done.Changes)
	return nil
}

// write makes text the file's; an empty one removes it.
func (n *nodeRates) write(text string) error {
	var err error
	if text == "" {
		if err = os.Remove(n.file); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else {
		err = os.WriteFile(n.file+".new", []byte(text), 0o600)
		if err == nil {
			err = os.Rename(n.file+".new", n.file)
		}
	}
	if err != nil {
		return fmt.Errorf("write the node's rates: %w", err)
	}
	n.saved = text
	return nil
}

// rateNames returns the names of annotations for rates.
func rateNames(annotations map[string]string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		for _, ours := range []string{annotationRate, annotationInRate} {
			if name == ours || strings.HasPrefix(name, ours+".") {
				names = append(names, name)
			}
		}
	}
	return names
}

// ratesText returns the agent's file (weir agent --rates) for annotations of a node, in which the first uplink is auto.
// Errors, for users: a value that is no rate, an uplink that the agent does not share.
func ratesText(annotations map[string]string, uplinks []string) (string, error) {
	type rates struct{ rate, inRate string }
	found := map[string]*rates{}
	var faults []string
	for _, name := range rateNames(annotations) {
		kind, named, isNamed := strings.Cut(strings.TrimPrefix(name, claims.AnnotationPrefix), ".")
		value := annotations[name]
		if isNamed && !slices.Contains(uplinks, named) {
			faults = append(faults, fmt.Sprintf("annotation %s: the agent shares no uplink %s: write the name of one of %s, or add that one to the agent's configuration", name, named, strings.Join(uplinks, ", ")))
			continue
		}
		if !isNamed || slices.Index(uplinks, named) == 0 {
			named = firstUplink
		}
		if found[named] == nil {
			found[named] = &rates{}
		}
		into := &found[named].rate
		if kind == "in-rate" {
			into = &found[named].inRate
		}
		if *into != "" {
			faults = append(faults, fmt.Sprintf("annotation %s: another one says the same of that uplink: remove one of them", name))
			continue
		}
		*into = value
		if _, err := policy.ParseRate(value); err != nil && (kind != "in-rate" || value != "auto") {
			faults = append(faults, fmt.Sprintf("annotation %s: %q %v", name, value, err))
		}
	}
	if len(faults) > 0 {
		return "", errors.New(strings.Join(faults, "; "))
	}
	if len(found) == 0 {
		return "", nil
	}
	text := strings.Builder{}
	text.WriteString("# By weir-dra, from the annotations of the node.\nuplinks:\n")
	for _, uplink := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&text, "- interface: %q\n", uplink)
		for _, line := range []struct{ key, value string }{{"rate", found[uplink].rate}, {"in_rate", found[uplink].inRate}} {
			if line.value != "" {
				fmt.Fprintf(&text, "  %s: %q\n", line.key, line.value)
			}
		}
	}
	return text.String(), nil
}

// firstUplink is the first one in the agent's file of rates.
const firstUplink = "auto"

// reloadTimeout bounds how long the agent may take to read its configuration again: kubelet's calls wait for it.
const reloadTimeout = 5 * time.Second
