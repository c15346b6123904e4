package policy

import (
	"errors"
	"path"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Rules are the operator's rules for all containers, from the config file.
type Rules struct {
	// Defaults apply where neither labels nor policies set a value.
	Defaults Values
	// Limits cap the values of labels.
	Limits []Limit
	// Policies override labels; later ones override earlier ones.
	Policies []Rule
	// TrustImageLabels allows image labels to request guarantees.
	TrustImageLabels bool
}

// Rule is a policy for the containers that a selector matches.
type Rule struct {
	Selector
	Values
}

// Limit is a limit for the containers that a selector matches.
type Limit struct {
	Selector
	Limits
}

// Selector matches containers by patterns ([path.Match], but * also matches slashes). An
// empty pattern matches everything.
type Selector struct {
	Name    string // container name
	Project string // Compose project or Swarm stack
	Service string // Compose service, or Swarm service with or without the stack's name
	Image   string // image name given when the container was created
}

// Subject is a container whose policy is resolved.
type Subject struct {
	Name, Image string
	// Labels, ImageLabels and ImageUnknown are as in Inputs.
	Labels, ImageLabels map[string]string
	ImageUnknown        string
	// Configured: the labels are the container's entry in the config file.
	Configured bool
}

// OfImage returns the labels that come with the image, or may come with it because the image's are unknown.
func (s Subject) OfImage() map[string]string {
	if s.ImageUnknown != "" {
		return s.Labels
	}
	return s.ImageLabels
}

// Labels that name a container's service and the project or stack of that service. Swarm's
// service names contain the stack: STACK_SERVICE.
const (
	LabelComposeProject = "com.docker.compose.project"
	LabelComposeService = "com.docker.compose.service"
	LabelSwarmStack     = "com.docker.stack.namespace"
	LabelSwarmService   = "com.docker.swarm.service.name"
)

// LabelNerdctlName is the name that nerdctl gave to a container.
const LabelNerdctlName = "nerdctl/name"

// labelComposeNumber is a container's number within its service. Compose sets it on
// containers only, while it sets project and service also on images that it builds.
const labelComposeNumber = "com.docker.compose.container-number"

var groupLabels = []string{LabelComposeProject, LabelComposeService, LabelSwarmStack, LabelSwarmService}

// ReadsLabel reports whether a label can affect a policy.
func ReadsLabel(name string) bool {
	return len(name) > len(Prefix) && strings.EqualFold(name[:len(Prefix)], Prefix) ||
		name == LabelKubernetesMax || name == LabelKubernetesIn || name == LabelDockerTCIn ||
		name == labelComposeNumber || name == LabelNerdctlName || slices.Contains(groupLabels, name)
}

// Resolve resolves the policy of a container; set are the values from `weir set`.
func (r Rules) Resolve(s Subject, set Values) Resolution {
	in := Inputs{
		Defaults: r.Defaults, Labels: s.Labels, ImageLabels: s.ImageLabels, ImageUnknown: s.ImageUnknown,
		TrustImageLabels: r.TrustImageLabels, Set: set,
	}
	for _, limit := range r.Limits {
		if limit.matches(s, nil) {
			in.Limits = append(in.Limits, limit.Limits)
		}
	}
	notBelieved := s.OfImage()
	if r.TrustImageLabels {
		notBelieved = nil
	}
	for _, rule := range r.Policies {
		switch {
		case rule.matches(s, notBelieved):
			in.Policies = append(in.Policies, Selected{Values: rule.Values})
		case s.ImageUnknown != "" && rule.matches(s, nil):
			in.Policies = append(in.Policies, Selected{Values: rule.Values, InDoubt: true})
		}
	}
	resolved := Resolve(in)
	if s.Configured {
		for _, from := range []*v1.PolicyFrom{&resolved.From, &resolved.InFrom} {
			for _, layer := range []*v1.Layer{&from.Weight, &from.Min, &from.Max, &from.Priority, &from.Latency, &from.Class, &from.EFMax, &from.AFMin, &from.DSCP} {
				if *layer == v1.LayerLabels {
					*layer = v1.LayerContainers
				}
			}
		}
	}
	return resolved
}

// matches reports whether the selector matches a container. Names, projects and services of labels in
// notBelieved are ignored: they come from the image, which could otherwise claim another's
// policies.
func (s Selector) matches(c Subject, notBelieved map[string]string) bool {
	fits := func(pattern string, names []string) bool {
		return pattern == "" || slices.ContainsFunc(names, func(name string) bool { return match(pattern, name) })
	}
	return fits(s.Name, c.names(notBelieved)) && fits(s.Image, []string{c.Image, repository(c.Image)}) &&
		fits(s.Project, operatorLabels(c.Labels, notBelieved, LabelComposeProject, LabelSwarmStack)) &&
		fits(s.Service, Services(c.Labels, notBelieved))
}

// names returns the names by which policies select the container. nerdctl's name is one of its own only while the labels of
// its image are unknown: it is called by its ID then, and by that name else.
func (s Subject) names(notBelieved map[string]string) []string {
	names := []string{s.Name}
	if called, given := operatorLabel(s.Labels, notBelieved, LabelNerdctlName); given && s.ImageUnknown != "" {
		namespace := s.Name[:strings.LastIndexByte(s.Name, '/')+1]
		names = append(names, namespace+called)
	}
	return names
}

// Services returns the names of a container's service, if set by the operator and not only
// by the image. For Swarm it returns the name with and without the stack's name.
func Services(labels, imageLabels map[string]string) []string {
	names := operatorLabels(labels, imageLabels, LabelComposeService, LabelSwarmService)
	service, _ := operatorLabel(labels, imageLabels, LabelSwarmService)
	stack, _ := operatorLabel(labels, imageLabels, LabelSwarmStack)
	if short, ok := strings.CutPrefix(service, stack+"_"); ok && stack != "" && short != "" {
		names = append(names, short)
	}
	return names
}

// operatorLabels returns the given labels that the operator set.
func operatorLabels(labels, imageLabels map[string]string, names ...string) (texts []string) {
	for _, name := range names {
		if text, given := operatorLabel(labels, imageLabels, name); given && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// operatorLabel returns a label if the operator, and not only the image, set it. A
// container created by Compose is trusted even if Compose also built its image with the
// same labels.
func operatorLabel(labels, imageLabels map[string]string, name string) (text string, given bool) {
	text, given = labels[name]
	if !given || !ofImage(labels, imageLabels, name) {
		return text, given
	}
	_, numbered := labels[labelComposeNumber]
	if !numbered || ofImage(labels, imageLabels, labelComposeNumber) || name != LabelComposeProject && name != LabelComposeService {
		return "", false
	}
	return text, true
}

func ofImage(labels, imageLabels map[string]string, name string) bool {
	of, there := imageLabels[name]
	return there && of == labels[name]
}

// slash replaces slashes, so that * also matches them.
var slash = strings.NewReplacer("/", "\x00")

func match(pattern, text string) bool {
	matched, err := path.Match(slash.Replace(pattern), slash.Replace(text))
	return err == nil && matched
}

// repository returns an image's name without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image
}

// ParsePattern parses one pattern of a Selector.
func ParsePattern(text string) (string, error) {
	if text == "" {
		return "", errEmpty
	}
	if _, err := path.Match(text, ""); err != nil {
		return "", errors.New("is not a pattern; write a name, in which * stands for any text and ? for a character")
	}
	return text, nil
}

// Check returns the name of a value that contradicts the others, and the reason.
func (v Values) Check() (name string, err error) {
	var p v1.Policy
	if v.MinBPS != nil && v.MaxBPS != nil {
		p.MinBPS, p.MaxBPS = *v.MinBPS, *v.MaxBPS
	}
	if v.EFMax != nil && v.AFMin != nil {
		p.EFMax, p.AFMin = *v.EFMax, *v.AFMin
	}
	if err := checkMinMax(p); err != nil {
		return "min", err
	}
	return "af-min", checkParts(p)
}

// With returns v, overridden by the values that over sets.
func (v Values) With(over Values) Values {
	with(&v.Weight, over.Weight)
	with(&v.MinBPS, over.MinBPS)
	with(&v.MaxBPS, over.MaxBPS)
	with(&v.Priority, over.Priority)
	with(&v.LatencyMS, over.LatencyMS)
	with(&v.Class, over.Class)
	with(&v.EFMax, over.EFMax)
	with(&v.AFMin, over.AFMin)
	with(&v.DSCP, over.DSCP)
	with(&v.InWeight, over.InWeight)
	with(&v.InMinBPS, over.InMinBPS)
	with(&v.InMaxBPS, over.InMaxBPS)
	with(&v.InPriority, over.InPriority)
	with(&v.InLatencyMS, over.InLatencyMS)
	return v
}

func with[T any](field **T, over *T) {
	if over != nil {
		*field = over
	}
}
