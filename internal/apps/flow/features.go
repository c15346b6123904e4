package flow

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Feature is one number computed from a flow for the classifier. BPF programs identify
// features by Code and use unsigned numbers, so Offset is added to features that may be
// negative.
type Feature struct {
	Name   string
	Code   uint8
	Offset int
	Values []string // names of a nominal feature's values 0, 1, ...
	// Late features need more packets than the first.
	Late bool
	of   func(*Flow, *Ports) float64
}

// Of returns the feature of a flow, or NaN if it is unknown.
func (f *Feature) Of(flow *Flow, ports *Ports) float64 { return f.of(flow, ports) }

// Word returns the unsigned number that BPF programs compare.
func (f *Feature) Word(v float64) uint32 {
	return uint32(min(max(v+float64(f.Offset), 0), math.MaxUint32-1))
}

// Feature codes, part of the binary form of trees (docs/classifier.md).
const (
	codeProto = iota
	codeSrcPort
	codeDstPort
	codeMSS
	codeWindow
	codeWScale
	codeTTL
	codeSYN
	codeDstService
	codeSrcService
	codeService
	codeDstRange
	codeSrcRange
	codeDstHigh
	codeDstLow
	codeSeqLen       = 32 // 6 features from here
	codeSeqGap       = 40 // 6 features
	codeClientLen    = 48 // 3 features
	codeServerLen    = 52 // 3 features
	codeFirstSide    = 56
	codePackets      = 57
	codeLargest      = 58
	codeSmallest     = 59
	codeTurns        = 60
	codeGapMax       = 61
	codeMSSServer    = 64
	codeWindowServer = 65
	codeWScaleServer = 66
	codeTTLServer    = 67
)

// ranges are the port ranges: well-known, registered, and two ranges of ephemeral ports
// (Linux begins at 32768, other systems at 49152).
var ranges = []string{"0-1023", "1024-32767", "32768-49151", "49152-65535"}

func portRange(port float64) float64 {
	switch {
	case math.IsNaN(port):
		return port
	case port < 1024:
		return 0
	case port < 32768:
		return 1
	case port < 49152:
		return 2
	}
	return 3
}

// Features returns all features for a set of application types, ordered by code.
func Features(types []string) []Feature {
	services := append([]string{"unknown"}, types...)
	column := func(i int) func(*Flow, *Ports) float64 {
		return func(f *Flow, _ *Ports) float64 { return f.Values[i] }
	}
	service := func(i int) func(*Flow, *Ports) float64 {
		return func(f *Flow, p *Ports) float64 {
			if math.IsNaN(f.Values[i]) {
				return math.NaN()
			}
			return float64(p.Service(int(f.Values[Proto]), int(f.Values[i])))
		}
	}
	ofPort := func(i int, g func(float64) float64) func(*Flow, *Ports) float64 {
		return func(f *Flow, _ *Ports) float64 { return g(f.Values[i]) }
	}
	out := []Feature{
		{Name: "proto", Code: codeProto, of: column(Proto)},
		{Name: "src_port", Code: codeSrcPort, of: column(SrcPort)},
		{Name: "dst_port", Code: codeDstPort, of: column(DstPort)},
		{Name: "mss_c2s", Code: codeMSS, of: column(MSSClient)},
		{Name: "win_c2s", Code: codeWindow, of: column(WindowClient)},
		{Name: "wscale_c2s", Code: codeWScale, Offset: 1, of: column(WScaleClient)},
		{Name: "ttl_c2s", Code: codeTTL, Offset: 1, of: column(TTLClient)},
		{Name: "syn", Code: codeSYN, of: column(SYN)},
		{Name: "dst_service", Code: codeDstService, Values: services, of: service(DstPort)},
		{Name: "src_service", Code: codeSrcService, Values: services, of: service(SrcPort)},
		{Name: "service", Code: codeService, Values: services, of: eitherService},
		{Name: "dst_range", Code: codeDstRange, Values: ranges, of: ofPort(DstPort, portRange)},
		{Name: "src_range", Code: codeSrcRange, Values: ranges, of: ofPort(SrcPort, portRange)},
		{Name: "dst_high", Code: codeDstHigh, of: ofPort(DstPort, func(v float64) float64 { return math.Floor(v / 256) })},
		{Name: "dst_low", Code: codeDstLow, of: ofPort(DstPort, func(v float64) float64 { return math.Mod(v, 256) })},
	}
	return append(out, lateFeatures()...)
}

// eitherService returns the service of the responder's port or, if that port is unknown, of
// the initiator's. The sides may be swapped if the start of a flow was missed, and active
// FTP sends from its own port.
func eitherService(f *Flow, p *Ports) float64 {
	proto := int(f.Values[Proto])
	if s := p.Service(proto, int(f.Values[DstPort])); s != 0 {
		return float64(s)
	}
	if math.IsNaN(f.Values[SrcPort]) {
		return 0
	}
	return float64(p.Service(proto, int(f.Values[SrcPort])))
}

// FeatureSets returns named lists of features.
func FeatureSets() map[string][]string {
	late := func(names ...string) []string {
		return append([]string{"service", "proto", "dst_range", "src_range"}, names...)
	}
	seq := []string{"seq_len1", "seq_len2", "seq_len3", "seq_len4", "seq_len5", "seq_len6"}
	return map[string][]string{
		"paper":     {"proto", "src_port", "dst_port", "mss_c2s", "win_c2s"},
		"ports":     {"proto", "src_port", "dst_port"},
		"dst":       {"proto", "dst_port"},
		"handshake": {"mss_c2s", "win_c2s", "wscale_c2s", "ttl_c2s"},
		"services":  {"service", "dst_service", "src_service", "proto", "dst_range", "src_range", "syn"},
		"sizes":     late(seq...),
	}
}

// Select resolves names of features and feature sets, in the order of their codes and
// without duplicates.
func Select(names []string, types []string) ([]Feature, error) {
	all, sets := Features(types), FeatureSets()
	wanted := map[string]bool{}
	for _, name := range names {
		if members, ok := sets[name]; ok {
			for _, m := range members {
				wanted[m] = true
			}
			continue
		}
		if !slices.ContainsFunc(all, func(f Feature) bool { return f.Name == name }) {
			return nil, fmt.Errorf("select features: %q is neither a feature nor a set: there are the sets %s and the features %s",
				name, strings.Join(sortedKeys(sets), ", "), strings.Join(featureNames(all), ", "))
		}
		wanted[name] = true
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("select features: none is named")
	}
	return slices.DeleteFunc(all, func(f Feature) bool { return !wanted[f.Name] }), nil
}

func featureNames(features []Feature) []string {
	var out []string
	for _, f := range features {
		out = append(out, f.Name)
	}
	return out
}

func sortedKeys(m map[string][]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Values returns the values of features of a flow, one per feature; NaN is an unknown one.
func Values(f *Flow, features []Feature, ports *Ports) []float64 {
	out := make([]float64, len(features))
	for i := range features {
		out[i] = features[i].Of(f, ports)
	}
	return out
}
