package v1_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// someTime shows the fields that are left out without one.
var someTime = time.Unix(1, 0)

// The names that programs read from `weir ps -o json` and from the socket. They
// are a contract: names may be added here, none changed or taken away.
var contract = map[string]struct {
	value any
	// names, and of which JSON type they are
	names map[string]string
}{
	"container": {v1.Container{Direction: v1.Direction{Shares: []v1.Share{}, Classes: []v1.ClassShare{{}}, MeasuredAt: someTime}, Groups: []string{"shop"}, Members: []string{"app"}, CountedWith: "id", StartedAt: someTime, In: &v1.Direction{}}, map[string]string{
		"in": "object",
		"id": "string", "name": "string", "runtime": "string", "mode": "string", "policy": "object", "policy_from": "object",
		"entitled_bps": "number", "allocated_bps": "number", "rate_bps": "number", "backlog_bytes": "number",
		"sent_bytes": "number", "sent_packets": "number", "dropped_packets": "number", "marked_packets": "number", "delay_p50_ms": "number", "delay_p99_ms": "number",
		"state": "string", "reason": "string", "shares": "array", "started_at": "string", "measured_at": "string", "groups": "array", "members": "array", "counted_with": "string", "classes": "array",
	}},
	"share": {v1.Share{MeasuredAt: someTime, Classes: []v1.ClassShare{{}}}, map[string]string{
		"uplink": "string", "entitled_bps": "number", "allocated_bps": "number", "held_back_bps": "number", "rate_bps": "number", "backlog_bytes": "number",
		"sent_bytes": "number", "sent_packets": "number", "dropped_packets": "number", "marked_packets": "number", "delay_p50_ms": "number", "delay_p99_ms": "number",
		"measured_at": "string", "controlled": "bool", "admitted_bps": "number", "latency_ms": "number",
		"wants_more": "bool", "wanted_bps": "number", "classes": "array",
	}},
	"class share": {v1.ClassShare{}, map[string]string{
		"class": "string", "max_bps": "number", "min_bps": "number", "rate_bps": "number", "backlog_bytes": "number",
		"sent_bytes": "number", "sent_packets": "number", "dropped_packets": "number", "marked_packets": "number", "delay_p50_ms": "number", "delay_p99_ms": "number",
		"excess_bps": "number", "excess_bytes": "number", "held": "bool",
	}},
	"explanation": {v1.Explanation{Policy: []v1.ExplainedValue{}, Shares: []v1.ExplainedShare{}, InPolicy: []v1.ExplainedValue{{}}, InShares: []v1.ExplainedShare{{}}}, map[string]string{
		"container": "object", "policy": "array", "shares": "array", "in_policy": "array", "in_shares": "array",
	}},
	"explained value": {v1.ExplainedValue{Notes: []string{"n"}}, map[string]string{
		"name": "string", "value": "string", "from": "string", "notes": "array",
	}},
	"explained share": {v1.ExplainedShare{Entitled: []string{}, Allocated: []string{}, ForMore: []string{}, Classes: []v1.ExplainedClass{{}}}, map[string]string{
		"uplink": "string", "entitled_bps": "number", "entitled": "array", "allocated_bps": "number", "allocated": "array", "for_more": "array", "classes": "array",
	}},
	"explained class": {v1.ExplainedClass{Because: []string{}}, map[string]string{"class": "string", "rate_bps": "number", "because": "array"}},
	"policy": {v1.Policy{}, map[string]string{
		"weight": "number", "min_bps": "number", "max_bps": "number", "priority": "number",
		"latency_ms": "number", "class": "string", "ef_max": "object", "af_min": "object", "dscp": "string",
	}},
	"part": {v1.Part{}, map[string]string{"bps": "number", "percent": "number"}},
	"policy change": {v1.PolicyChange{
		Weight: new(string), Min: new(string), Max: new(string), Priority: new(string), Latency: new(string), Class: new(string),
		EFMax: new(string), AFMin: new(string), DSCP: new(string),
		InWeight: new(string), InMin: new(string), InMax: new(string), InPriority: new(string), InLatency: new(string),
	}, map[string]string{
		"weight": "string", "min": "string", "max": "string", "priority": "string", "latency": "string", "class": "string", "ef_max": "string", "af_min": "string", "dscp": "string",
		"in_weight": "string", "in_min": "string", "in_max": "string", "in_priority": "string", "in_latency": "string",
	}},
	"status": {v1.Status{Sources: []v1.Source{}, Uplinks: []v1.Uplink{}}, map[string]string{
		"version": "string", "uplink": "string", "rate_bps": "number", "reserve_bps": "number", "sent_bps": "number",
		"scheduler": "string", "state": "string", "reason": "string", "turns": "object", "sources": "array", "uplinks": "array", "age_ms": "number",
		"classifier": "object", "last_event": "number",
	}},
	"classifier": {v1.Classifier{SHA256: "s", Levels: []string{"l"}, Data: "d", InForceSince: someTime}, map[string]string{
		"source": "string", "sha256": "string", "levels": "array", "min_confidence": "number", "data": "string",
		"flows": "number", "groups": "number", "nodes": "number", "in_force_since": "string",
	}},
	"direction": {v1.Direction{MeasuredAt: someTime, Shares: []v1.Share{}, Classes: []v1.ClassShare{{}}}, map[string]string{
		"policy": "object", "policy_from": "object", "entitled_bps": "number", "allocated_bps": "number", "rate_bps": "number",
		"backlog_bytes": "number", "sent_bytes": "number", "sent_packets": "number", "dropped_packets": "number", "marked_packets": "number",
		"delay_p50_ms": "number", "delay_p99_ms": "number", "measured_at": "string", "shares": "array", "classes": "array",
	}},
	"uplink in": {v1.UplinkIn{}, map[string]string{
		"device": "string", "rate_bps": "number", "reserve_bps": "number", "received_bps": "number", "host_competes": "bool", "scheduler": "string", "state": "string", "reason": "string",
	}},
	"uplink": {v1.Uplink{In: &v1.UplinkIn{}}, map[string]string{
		"in":   "object",
		"name": "string", "rate_bps": "number", "reserve_bps": "number", "sent_bps": "number",
		"scheduler": "string", "state": "string", "reason": "string", "present": "bool", "host_competes": "bool", "mtu_bytes": "number", "precision": "string",
	}},
	"snapshot": {v1.Snapshot{Containers: []v1.Container{}}, map[string]string{"status": "object", "containers": "array"}},
	"event": {v1.Event{
		Container: "c", ID: "i", Runtime: "r", Uplink: "u", Policy: &v1.Policy{}, In: &v1.Policy{}, Message: "m", Missed: 1,
	}, map[string]string{
		"seq": "number", "at": "string", "kind": "string", "container": "string", "id": "string", "runtime": "string",
		"uplink": "string", "policy": "object", "in": "object", "message": "string", "missed": "number",
	}},
	"history":          {v1.History{Shares: []v1.HistoryShare{}}, map[string]string{"id": "string", "name": "string", "shares": "array"}},
	"container policy": {v1.ContainerPolicy{}, map[string]string{"id": "string", "name": "string", "runtime": "string", "policy": "object", "policy_from": "object"}},
	"preview": {v1.Preview{Refused: "x", Uplinks: []v1.UplinkPreview{}}, map[string]string{
		"id": "string", "name": "string", "before": "object", "after": "object", "refused": "string", "uplinks": "array",
	}},
	"uplink preview": {v1.UplinkPreview{Refused: "x", Shares: []v1.SharePreview{}}, map[string]string{"uplink": "string", "refused": "string", "shares": "array"}},
	"share preview": {v1.SharePreview{}, map[string]string{
		"id": "string", "name": "string", "entitled_before_bps": "number", "entitled_after_bps": "number",
		"allocated_before_bps": "number", "allocated_after_bps": "number", "admitted_bps": "number",
	}},
	"history share": {v1.HistoryShare{Samples: []v1.HistorySample{}}, map[string]string{
		"uplink": "string", "samples": "array",
	}},
	"history sample": {v1.HistorySample{}, map[string]string{
		"at": "string", "entitled_bps": "number", "allocated_bps": "number", "rate_bps": "number", "wants_more": "bool", "wanted_bps": "number",
		"backlog_bytes": "number", "delay_p50_ms": "number", "delay_p99_ms": "number", "dropped_packets": "number", "marked_packets": "number",
	}},
	"node": {v1.Node{Containers: []v1.NodeContainer{}}, map[string]string{
		"softResources": "object", "hardResources": "object", "resourceUsage": "object", "PiID": "string", "PiIP": "string",
		"containers": "array", "measured": "object",
	}},
	"measured": {v1.Measured{Containers: []v1.MeasuredContainer{}, Uplinks: []v1.MeasuredUplink{}, Responses: []v1.ServiceResponse{}, ResponsesReason: "x"}, map[string]string{
		"at": "string", "os": "string", "hostname": "string", "cpu_model": "string", "cpus": "number", "cpu_used_percent": "number",
		"load_1": "number", "memory_bytes": "number", "memory_used_bytes": "number", "disk_bytes": "number", "disk_free_bytes": "number",
		"containers": "array", "uplinks": "array", "responses": "array", "responses_reason": "string",
	}},
	"service response": {v1.ServiceResponse{}, map[string]string{
		"service": "string", "instance": "string", "requests": "number", "mean_seconds": "number", "p95_seconds": "number",
		"delivery_seconds": "number",
	}},
	"measured container": {v1.MeasuredContainer{Ports: []v1.Port{}, StartedAt: someTime, MemoryBytes: new(uint64), CPUSeconds: new(float64), Connections: new(int)}, map[string]string{
		"id": "string", "name": "string", "runtime": "string", "image": "string", "ports": "array", "started_at": "string",
		"memory_bytes": "number", "cpu_seconds": "number", "connections": "number",
	}},
	"port": {v1.Port{}, map[string]string{"container": "number", "host": "number", "protocol": "string"}},
	"measured uplink": {v1.MeasuredUplink{In: &v1.MeasuredIncoming{}}, map[string]string{
		"name": "string", "rate_bps": "number", "sent_bps": "number", "admitted_bps": "number", "free_bps": "number", "in": "object",
	}},
	"measured incoming": {v1.MeasuredIncoming{}, map[string]string{
		"rate_bps": "number", "received_bps": "number", "admitted_bps": "number", "free_bps": "number",
	}},
	"source": {v1.Source{}, map[string]string{"name": "string", "connected": "bool", "reason": "string"}},
	"access": {v1.Access{}, map[string]string{"name": "string", "role": "string"}},
	"error":  {v1.Error{}, map[string]string{"error": "string", "title": "string", "status": "number", "detail": "string"}},
}

func jsonType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "null"
}

func TestNames(t *testing.T) {
	for what, c := range contract {
		data, err := json.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, value := range fields {
			got[name] = jsonType(value)
		}
		// A field that is zero is there, too: nobody has to guess its default.
		if !maps.Equal(got, c.names) {
			t.Errorf("%s: %v\nwant %v", what, got, c.names)
		}
		embedded := func(f reflect.StructField) bool { return f.Anonymous }
		if n := len(slices.DeleteFunc(reflect.VisibleFields(reflect.TypeOf(c.value)), embedded)); n != len(c.names) {
			t.Errorf("%s has %d fields, the contract %d names", what, n, len(c.names))
		}
	}
}

// A change says nothing about what it leaves.
func TestEmptyChange(t *testing.T) {
	if data, err := json.Marshal(v1.PolicyChange{}); err != nil || string(data) != "{}" {
		t.Errorf("%s (%v)", data, err)
	}
}

func TestValues(t *testing.T) {
	modes := []v1.Mode{v1.ModeBridge, v1.ModeHost, v1.ModeMacvlan, v1.ModeIPvlan, v1.ModeOverlay, v1.ModeNone}
	if want := []v1.Mode{"bridge", "host", "macvlan", "ipvlan", "overlay", "none"}; !slices.Equal(modes, want) {
		t.Errorf("modes %v", modes)
	}
	states := []v1.State{v1.StateOK, v1.StateDegraded, v1.StateRejected}
	if want := []v1.State{"ok", "degraded", "rejected"}; !slices.Equal(states, want) {
		t.Errorf("states %v", states)
	}
	classes := []v1.Class{v1.ClassNone, v1.ClassEF, v1.ClassAF, v1.ClassBE, v1.ClassAuto}
	if want := []v1.Class{"", "ef", "af", "be", "auto"}; !slices.Equal(classes, want) {
		t.Errorf("classes %v", classes)
	}
}
