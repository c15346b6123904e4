package run

import (
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/spec"
)

// response is how long users wait at one proxy, in seconds; end says until when.
type response struct {
	mean, p95, delivery float64
	end                 edge.ResponseEnd
}

// response returns how long users of a proxy wait for one of its instances ("": for any of them). The
// agent of its node knows when users have the last byte. Without an agent the proxy says when it had the
// first.
func (o *observation) response(service string, p *observedProxy, instance string) response {
	name := ""
	if instance != "" {
		name = proxy.InstanceName(instance)
	}
	if n := o.measured(p.Node); n != nil {
		i := slices.IndexFunc(n.Reported.Responses, func(r v1.ServiceResponse) bool { return r.Service == service && r.Instance == name })
		if i >= 0 {
			r := &n.Reported.Responses[i]
			return response{mean: r.MeanSeconds, p95: r.P95Seconds, delivery: r.DeliverySeconds, end: edge.ResponseDelivered}
		}
	}
	seen := response{mean: p.status.Response.Seconds(), end: edge.ResponseFirstByte}
	if instance != "" {
		seen.mean = serverOf(*p, instance).Response.Seconds()
	}
	if o.specs[service].Labels[spec.LabelMode] == string(proxy.ModeTCP) {
		seen.end = edge.ResponseConnected
	}
	return seen
}

// slowest returns the response times at the proxy of a service where users wait longest.
func (o *observation) slowest(service, instance string) (most response) {
	for i := range o.proxies[service] {
		if seen := o.response(service, &o.proxies[service][i], instance); most.end == "" || seen.mean > most.mean {
			most = seen
		}
	}
	return most
}
