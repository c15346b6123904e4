package policy

import (
	"errors"
	"path"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Rules are what the operator lays down for all containers, in the config file.
type Rules struct {
	// Defaults are for what neither labels nor policies say.
	Defaults Values
	// Limits cut what labels ask for.
	Limits []Limit
	// Policies come before labels, later ones before earlier ones.
	Policies []Rule
	// TrustImageLabels lets labels of images ask for guarantees.
	TrustImageLabels bool
}

// Rule is a policy for the containers that a selector names.
type Rule struct {
	Selector
	Values
}

// Limit is a limit for the containers that a selector names.
type Limit struct {
	Selector
	Limits
}

// Selector names containers, each of its parts with a pattern ([path.Match]) in
// which * stands for slashes, too. An empty part names all.
type Selector struct {
	Name    string // the container's
	Project string // of Compose, or a Swarm stack
	Service string // of Compose, or of Swarm with or without the stack's name
	Image   string // as it was named when the container was made
}

// Subject is a container that a policy is looked for.
type Subject struct {
	Name, Image string
	// Labels, ImageLabels and ImageUnknown are as in Inputs.
	Labels, ImageLabels map[string]string
	ImageUnknown        string
}

// Labels that say which service a container is of, and which project or stack that
// is of. Swarm names a service with its stack, as STACK_SERVICE.
const (
	LabelComposeProject = "com.docker.compose.project"
	LabelComposeService = "com.docker.compose.service"
	LabelSwarmStack     = "com.docker.stack.namespace"
	LabelSwarmService   = "com.docker.swarm.service.name"
)

// labelComposeNumber is the number of a container among those of its service.
// Compose gives it to containers only, project and service also to the images that
// it builds.
const labelComposeNumber = "com.docker.compose.container-number"

var groupLabels = []string{LabelComposeProject, LabelComposeService, LabelSwarmStack, LabelSwarmService}

// ReadsLabel says whether a label of that name can matter to a policy.
func ReadsLabel(name string) bool {
	return len(name) > len(Prefix) && strings.EqualFold(name[:len(Prefix)], Prefix) || name == LabelKubernetesMax ||
		name == labelComposeNumber || slices.Contains(groupLabels, name)
}

// Resolve finds the policy of a container of which set was set.
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
	notBelieved := s.ImageLabels
	if r.TrustImageLabels {
		notBelieved = nil
	}
	for _, rule := range r.Policies {
		if rule.matches(s, notBelieved) {
			in.Policies = append(in.Policies, rule.Values)
		}
	}
	return Resolve(in)
}

// matches says whether the selector names a container. What its image says of
// project and service is not believed where notBelieved has it: an image could
// claim another's policies.
func (s Selector) matches(c Subject, notBelieved map[string]string) bool {
	fits := func(pattern string, names []string) bool {
		return pattern == "" || slices.ContainsFunc(names, func(name string) bool { return match(pattern, name) })
	}
	return fits(s.Name, []string{c.Name}) && fits(s.Image, []string{c.Image, repository(c.Image)}) &&
		fits(s.Project, operatorLabels(c.Labels, notBelieved, LabelComposeProject, LabelSwarmStack)) &&
		fits(s.Service, Services(c.Labels, notBelieved))
}

// Services are the names of the service that a container is of, if that is the
// operator's word and not only its image's: for Compose, and for Swarm as Swarm calls it
// and without the stack's name.
func Services(labels, imageLabels map[string]string) []string {
	names := operatorLabels(labels, imageLabels, LabelComposeService, LabelSwarmService)
	service, _ := operatorLabel(labels, imageLabels, LabelSwarmService)
	stack, _ := operatorLabel(labels, imageLabels, LabelSwarmStack)
	if short, ok := strings.CutPrefix(service, stack+"_"); ok && stack != "" && short != "" {
		names = append(names, short)
	}
	return names
}

// operatorLabels are those of the labels that are given and the operator's word.
func operatorLabels(labels, imageLabels map[string]string, names ...string) (texts []string) {
	for _, name := range names {
		if text, given := operatorLabel(labels, imageLabels, name); given && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// operatorLabel is the label of a container that says what it is one of, if it is
// the operator's word and not only its image's. A container that Compose made
// is what its labels say, also where Compose built the image, with the same ones.
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

// slash stands for a slash where * is to match it, too.
var slash = strings.NewReplacer("/", "\x00")

func match(pattern, text string) bool {
	matched, err := path.Match(slash.Replace(pattern), slash.Replace(text))
	return err == nil && matched
}

// repository is an image's name without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image
}

// ParsePattern reads a part of a Selector.
func ParsePattern(text string) (string, error) {
	if text == "" {
		return "", errEmpty
	}
	if _, err := path.Match(text, ""); err != nil {
		return "", errors.New("is not a pattern; write a name, in which * stands for any text and ? for a character")
	}
	return text, nil
}

// Check says whether values can be in force together, as far as they say: which of
// them, by its name, cannot, and why.
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

// With is v with what over says instead, value by value.
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
	return v
}

func with[T any](field **T, over *T) {
	if over != nil {
		*field = over
	}
}
