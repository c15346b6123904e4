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
// which a running agent reads again when weir-dra asks for that. A wrong annotation changes nothing, and is an event of the node.
type nodeRates struct {
	informer cache.SharedIndexInformer
	factory  informers.SharedInformerFactory
	recorder record.EventRecorder
	file     string
	log      *slog.Logger
	// saved is the file's text, accepted the last one that the agent took or that was there at the start.
	saved, accepted string
	// tried was passed to the agent at triedAt, which took it (inForce), refused it (refusal), or could not be asked: all
	// empty at the start, so that the agent reads the file once.
	tried   string
	triedAt time.Time
	inForce bool
	refusal string
	// misconfigured: the agent refuses its configuration also with the rates that it accepted before.
	misconfigured bool
	// uplinks are what the agent shares, since movedAt.
	uplinks []string
	movedAt time.Time
	fault   string
	last    emitted
}

func newNodeRates(nodeName, folder string, kube kubernetes.Interface, recorder record.EventRecorder, wake func(), log *slog.Logger) (*nodeRates, error) {
	n := &nodeRates{recorder: recorder, file: claims.RatesFile(folder), log: log}
	text, err := os.ReadFile(n.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the node's rates: %w", err)
	}
	n.saved, n.accepted = string(text), string(text)
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
	uplinks := namesOf(shared)
	rates, err := ratesOf(node.Annotations)
	if err != nil {
		n.fault = err.Error() + unchanged
		n.report(node, now)
		return
	}
	text, moved := ratesText(rates), !slices.Equal(uplinks, n.uplinks)
	if moved {
		n.uplinks, n.movedAt = uplinks, now
	}
	if text != n.tried || !n.inForce && (n.refusal == "" || moved || now.Sub(n.triedAt) > retryInterval) {
		if err := n.change(ctx, agent, text, now); err != nil {
			n.log.Warn("cannot pass the node's rates on to the agent; trying again", "error", err)
			return
		}
	}
	switch {
	case n.misconfigured && text != "":
		n.fault = fmt.Sprintf("the agent refuses its configuration even with the previous rates: correct the ConfigMap weir, or the agent's file: %s", n.refusal) + unchanged
	case n.refusal != "" && text != "":
		n.fault = fmt.Sprintf("the agent refuses the annotations %s: %s", strings.Join(rateNames(node.Annotations), ", "), n.refusal) + unchanged
	default:
		n.fault = notInForce(rates, shared, n.file, now.Sub(n.triedAt) > settleTime && now.Sub(n.movedAt) > settleTime)
	}
	n.report(node, now)
}

// applyAlone notes the rates of the node's annotations while there is no agent: they may be why it does not start.
func (n *nodeRates) applyAlone() {
	node := n.get()
	if node == nil {
		return
	}
	rates, err := ratesOf(node.Annotations)
	if err != nil {
		return // apply reports the error when the agent is there
	}
	text := ratesText(rates)
	if text == n.saved || text == n.tried && n.refusal != "" {
		return
	}
	if err := n.write(text); err != nil {
		n.log.Warn("cannot note the node's rates; trying again", "error", err)
		return
	}
	n.inForce, n.refusal, n.misconfigured = false, "", false // the agent is asked when it is there
	n.log.Info("the node's annotations have changed rates for an agent that is not there")
}

// report says as an event of the node why its rates are not in force, once, and while that lasts each eventInterval.
func (n *nodeRates) report(node *core.Node, now time.Time) {
	if n.fault == "" {
		n.last = emitted{}
		return
	}
	if fault := (event{eventRateRefused, n.fault}); n.last.event != fault || now.Sub(n.last.at) > eventInterval {
		n.log.Warn(fault.message)
		n.recorder.Event(node, core.EventTypeWarning, fault.reason, fault.message)
		n.last = emitted{fault, now}
	}
}

// change writes the file and has the agent read it. Rates that the agent refuses are taken back: with them it would not
// start again.
func (n *nodeRates) change(ctx context.Context, agent *client.Client, text string, now time.Time) error {
	n.tried, n.triedAt, n.inForce, n.refusal, n.misconfigured = text, now, false, "", false
	before := n.saved
	if err := n.write(text); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	done, err := agent.Reload(ctx)
	if isRefused(err) {
		n.refusal = err.Error()
		if err := n.write(n.accepted); err != nil {
			return err
		}
		_, err = agent.Reload(ctx) // with rates that it has accepted: whether the new ones are at fault
		n.misconfigured = isRefused(err)
		return nil
	}
	if err != nil {
		return errors.Join(err, n.write(before))
	}
	n.accepted, n.inForce = text, true
	n.log.Info("the agent has the rates of the node's annotations", "changes", done.Changes)
	return nil
}

// isRefused reports whether an agent has refused what it was to read.
func isRefused(err error) bool {
	refused, is := errors.AsType[*client.Error](err)
	return is && refused.Status == http.StatusConflict
}

// write makes text the file's; an empty one removes it.
func (n *nodeRates) write(text string) error {
	if text == n.saved {
		return nil
	}
	if err := claims.SaveRates(n.file, text); err != nil {
		return err
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

// nodeRate is what annotations say of one uplink: the values as they are written, and the annotations' names.
type nodeRate struct{ rate, inRate, byRate, byInRate string }

// without returns what r says of directions of which other says nothing.
func (r nodeRate) without(other nodeRate) nodeRate {
	if other.rate != "" {
		r.rate, r.byRate = "", ""
	}
	if other.inRate != "" {
		r.inRate, r.byInRate = "", ""
	}
	return r
}

// ratesOf returns what annotations of a node say, by uplinks; firstUplink for annotations without a name. Errors, for users:
// a value that is no rate, or a name that is no device's.
func ratesOf(annotations map[string]string) (map[string]*nodeRate, error) {
	found := map[string]*nodeRate{}
	var faults []string
	for _, name := range rateNames(annotations) {
		kind, named, isNamed := strings.Cut(strings.TrimPrefix(name, claims.AnnotationPrefix), ".")
		value := annotations[name]
		if isNamed && (named == firstUplink || len(named) > maxNameBytes) {
			faults = append(faults, fmt.Sprintf("annotation %s: %s is not the name of a device: write one, or %s%s for the first uplink", name, named, claims.AnnotationPrefix, kind))
			continue
		}
		if !isNamed {
			named = firstUplink
		}
		if found[named] == nil {
			found[named] = &nodeRate{}
		}
		if kind == "in-rate" {
			found[named].inRate, found[named].byInRate = value, name
		} else {
			found[named].rate, found[named].byRate = value, name
		}
		if _, err := policy.ParseRate(value); err != nil && (kind != "in-rate" || value != "auto") {
			faults = append(faults, fmt.Sprintf("annotation %s: %q %v", name, value, err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return found, nil
}

// ratesText returns the agent's file (weir agent --rates-file). A device keeps its name in it, also the first one: another one
// may be the first later. Rates without a name come first, because a later one of the same uplink replaces them.
func ratesText(rates map[string]*nodeRate) string {
	if len(rates) == 0 {
		return ""
	}
	text := strings.Builder{}
	text.WriteString("# By weir-dra, from the annotations of the node.\nuplinks:\n")
	uplinks := slices.Sorted(maps.Keys(rates))
	if i := slices.Index(uplinks, firstUplink); i > 0 {
		uplinks = slices.Insert(slices.Delete(uplinks, i, i+1), 0, firstUplink)
	}
	for _, uplink := range uplinks {
		fmt.Fprintf(&text, "- interface: %q\n", uplink)
		for _, line := range []struct{ key, value string }{{"rate", rates[uplink].rate}, {"in_rate", rates[uplink].inRate}} {
			if line.value != "" {
				fmt.Fprintf(&text, "  %s: %q\n", line.key, line.value)
			}
		}
	}
	return text.String()
}

func namesOf(uplinks []v1.MeasuredUplink) (names []string) {
	for i := range uplinks {
		names = append(names, uplinks[i].Name)
	}
	return names
}

// notInForce returns, for users, which rates have no effect at the shared uplinks, or nothing: those of devices that are not
// shared and, if settled, those that the agent did not take from the file. A rate with the first uplink's name replaces the one
// without a name there, which is no fault: another uplink may be the first later.
func notInForce(rates map[string]*nodeRate, shared []v1.MeasuredUplink, file string, settled bool) string {
	var faults []string
	names := namesOf(shared)
	for _, uplink := range slices.Sorted(maps.Keys(rates)) {
		r := *rates[uplink]
		i := slices.Index(names, uplink)
		if uplink == firstUplink && len(shared) > 0 {
			i = 0
			if named := rates[names[0]]; named != nil {
				r = r.without(*named)
			}
		}
		if i < 0 {
			for _, name := range []string{r.byRate, r.byInRate} {
				if name != "" {
					faults = append(faults, fmt.Sprintf("annotation %s: the agent shares no uplink %s: write the name of one of %s, or add that one to the agent's configuration; it counts while the agent shares it", name, uplink, strings.Join(names, ", ")))
				}
			}
			continue
		}
		if !settled {
			continue
		}
		has, hasIn := shared[i].RateBPS, uint64(0)
		if shared[i].In != nil {
			hasIn = shared[i].In.RateBPS
		}
		for _, of := range []struct {
			name, value string
			has         uint64
		}{{r.byRate, r.rate, has}, {r.byInRate, r.inRate, hasIn}} {
			if wanted, err := policy.ParseRate(of.value); of.name != "" && err == nil && wanted != of.has {
				faults = append(faults, fmt.Sprintf("annotation %s: the agent has %s at %s and not %s: start it with --rates-file=%s, and see `weir doctor`", of.name, shared[i].Name, policy.FormatRate(of.has), of.value, file))
			}
		}
	}
	return strings.Join(faults, "; ")
}

const (
	// unchanged ends a fault of annotations that are not passed on.
	unchanged = "; the node's rates stay as they were"
	// maxNameBytes bounds the name of a device (IFNAMSIZ less the zero).
	maxNameBytes = 15
	// settleTime is the time that the agent's answers take to follow a change of rates or uplinks.
	settleTime = 3 * time.Second
	// retryInterval is the time between attempts at rates that the agent refuses.
	retryInterval = time.Minute
)

// firstUplink is the first one in the agent's file of rates.
const firstUplink = "auto"

// reloadTimeout bounds how long the agent may take to read its configuration again: kubelet's calls wait for it.
const reloadTimeout = 5 * time.Second
