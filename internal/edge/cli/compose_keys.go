package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weir-project/weir/internal/share/policy"
)

// Every key of a Compose file is honoured, without effect, or refused, by this table. compose-go knows
// all keys of the specification; a test compares. The walk over a file sees keys as they are written,
// with their lines, before anything is merged or set.

// treatment is what becomes of a key.
type treatment int

const (
	honoured treatment = iota
	// onEngine: honoured on one engine; a swarm has nothing like it, so it is refused there.
	onEngine
	withoutEffect
	refused
)

// composeKey is a key with all below it that has no entry of its own. A * is any name.
type composeKey struct {
	path string
	as   treatment
	say  string // why it has no effect, or what to write
}

var composeKeys = []composeKey{
	{"name", honoured, ""},
	{"include", honoured, ""},
	{"version", withoutEffect, "Compose has no versions any more"},
	{"jobs", refused, "weir-edge runs services that stay"},
	{"models", refused, "run the model as a service"},
	{"services", honoured, ""},
	{"services.*.x-weir-edge", honoured, ""},

	{"services.*.image", honoured, ""},
	{"services.*.command", honoured, ""},
	{"services.*.entrypoint", honoured, ""},
	{"services.*.environment", honoured, ""},
	{"services.*.env_file", honoured, ""},
	{"services.*.working_dir", honoured, ""},
	{"services.*.user", honoured, ""},
	{"services.*.group_add", honoured, ""},
	{"services.*.hostname", honoured, ""},
	{"services.*.init", honoured, ""},
	{"services.*.tty", honoured, ""},
	{"services.*.stdin_open", honoured, ""},
	{"services.*.stop_signal", honoured, ""},
	{"services.*.stop_grace_period", honoured, ""},
	{"services.*.labels", honoured, ""},
	{"services.*.label_file", honoured, ""},
	{"services.*.profiles", honoured, ""},
	{"services.*.extends", honoured, ""},
	{"services.*.depends_on", honoured, ""},
	{"services.*.depends_on.*.restart", withoutEffect, "instances reach what they need by its name"},
	{"services.*.healthcheck", honoured, ""},
	{"services.*.restart", honoured, ""},
	{"services.*.logging", honoured, ""},
	{"services.*.scale", honoured, ""},
	{"services.*.container_name", honoured, ""},

	{"services.*.ports", honoured, ""},
	{"services.*.ports.[].name", withoutEffect, "it is a comment"},
	{"services.*.networks", honoured, ""},
	{"services.*.networks.*.priority", withoutEffect, "the engine decides"},
	{"services.*.networks.*.gw_priority", withoutEffect, "the engine decides"},
	{"services.*.networks.*.driver_opts", refused, "write it at the network"},
	{"services.*.networks.*.interface_name", refused, "the engine names interfaces"},
	{"services.*.networks.*.ipv4_address", refused, "two instances cannot have one address; reach the service by its name"},
	{"services.*.networks.*.ipv6_address", refused, "two instances cannot have one address; reach the service by its name"},
	{"services.*.networks.*.link_local_ips", refused, "two instances cannot have one address"},
	{"services.*.networks.*.mac_address", refused, "two instances cannot have one address"},
	{"services.*.network_mode", honoured, ""},
	{"services.*.extra_hosts", honoured, ""},
	{"services.*.dns", honoured, ""},
	{"services.*.dns_opt", honoured, ""},
	{"services.*.dns_search", honoured, ""},
	{"services.*.expose", withoutEffect, "services of one project reach each other at all ports"},
	{"services.*.links", refused, "reach the service by its name, or by networks.NETWORK.aliases"},
	{"services.*.external_links", refused, "put both on an external network"},
	{"services.*.mac_address", refused, "two instances cannot have one address"},
	{"services.*.domainname", refused, "write it in hostname"},

	{"services.*.volumes", honoured, ""},
	{"services.*.volumes.[].consistency", withoutEffect, "Linux needs none"},
	{"services.*.volumes.[].bind.recursive", refused, "the engine decides"},
	{"services.*.volumes.[].bind.selinux", refused, "label the path with chcon"},
	{"services.*.volumes.[].image", refused, "put the files into the image of the service"},
	{"services.*.volumes.[].volume.labels", withoutEffect, "nothing reads them"},
	{"services.*.tmpfs", honoured, ""},
	{"services.*.configs", honoured, ""},
	{"services.*.secrets", honoured, ""},
	{"services.*.volumes_from", refused, "write the volumes themselves"},

	{"services.*.read_only", honoured, ""},
	{"services.*.cap_add", honoured, ""},
	{"services.*.cap_drop", honoured, ""},
	{"services.*.sysctls", honoured, ""},
	{"services.*.ulimits", honoured, ""},
	{"services.*.oom_score_adj", honoured, ""},
	{"services.*.pids_limit", honoured, ""},
	{"services.*.mem_limit", honoured, ""},
	{"services.*.cpus", honoured, ""},
	{"services.*.privileged", onEngine, ""},
	{"services.*.security_opt", onEngine, ""},
	{"services.*.devices", onEngine, ""},
	{"services.*.pid", onEngine, ""},
	{"services.*.ipc", onEngine, ""},
	{"services.*.shm_size", onEngine, ""},
	{"services.*.mem_reservation", onEngine, ""},
	{"services.*.memswap_limit", onEngine, ""},
	{"services.*.cpuset", onEngine, ""},
	{"services.*.cpu_shares", onEngine, ""},

	{"services.*.deploy", honoured, ""},
	{"services.*.deploy.endpoint_mode", withoutEffect, "names lead to instances themselves"},
	{"services.*.deploy.placement.preferences", withoutEffect, "x-weir-edge.algorithm chooses nodes"},
	{"services.*.deploy.placement.max_replicas_per_node", refused, "x-weir-edge.availability spreads instances over nodes"},
	{"services.*.deploy.resources.reservations", withoutEffect, "limits are what is promised"},
	{"services.*.deploy.resources.reservations.devices", refused, "weir-edge requests no devices from the engine"},
	{"services.*.deploy.resources.reservations.generic_resources", refused, "write deploy.placement.constraints"},
	{"services.*.deploy.restart_policy", withoutEffect, "what ends is started again"},
	{"services.*.deploy.update_config", withoutEffect, "weir-edge changes one instance after the other"},
	{"services.*.deploy.rollback_config", withoutEffect, "weir-edge goes back by itself"},

	{"services.*.build", withoutEffect, "the image is run as it is"},
	{"services.*.platform", withoutEffect, "the engine takes the image for its processor"},
	{"services.*.pull_policy", withoutEffect, "an image that is there is not pulled"},
	{"services.*.pull_refresh_after", withoutEffect, "an image that is there is not pulled"},
	{"services.*.attach", withoutEffect, "docker logs shows what instances say"},
	{"services.*.develop", withoutEffect, "it is for docker compose watch"},
	{"services.*.annotations", withoutEffect, "write labels"},
	{"services.*.blkio_config", refused, "write limits in deploy.resources"},
	{"services.*.cgroup", refused, "the engine decides"},
	{"services.*.cgroup_parent", refused, "the engine decides"},
	{"services.*.cpu_count", refused, "write cpus"},
	{"services.*.cpu_percent", refused, "write cpus"},
	{"services.*.cpu_period", refused, "write cpus"},
	{"services.*.cpu_quota", refused, "write cpus"},
	{"services.*.cpu_rt_period", refused, "write cpus"},
	{"services.*.cpu_rt_runtime", refused, "write cpus"},
	{"services.*.credential_spec", refused, "it is for Windows only"},
	{"services.*.device_cgroup_rules", refused, "write devices"},
	{"services.*.gpus", refused, "weir-edge requests no devices from the engine"},
	{"services.*.isolation", refused, "it is for Windows only"},
	{"services.*.mem_swappiness", refused, "write memswap_limit"},
	{"services.*.models", refused, "run the model as a service"},
	{"services.*.oom_kill_disable", refused, "write mem_limit"},
	{"services.*.post_start", refused, "write it into the command"},
	{"services.*.pre_start", refused, "write it into the command"},
	{"services.*.pre_stop", refused, "write it into the command"},
	{"services.*.provider", refused, "weir-edge runs containers"},
	{"services.*.runtime", refused, "make it the engine's default"},
	{"services.*.storage_opt", refused, "the engine decides"},
	{"services.*.umask", refused, "write it into the command"},
	{"services.*.use_api_socket", refused, "mount the socket as a volume"},
	{"services.*.userns_mode", refused, "the engine decides"},
	{"services.*.uts", refused, "write hostname"},

	{"networks", honoured, ""},
	{"networks.*.attachable", withoutEffect, "all are, on a swarm"},
	{"networks.*.labels", withoutEffect, "nothing reads them"},
	{"networks.*.enable_ipv4", refused, "all networks have IPv4"},
	{"networks.*.ipam.driver", refused, "write ipam.config with a subnet"},
	{"networks.*.ipam.options", refused, "write ipam.config with a subnet"},
	{"networks.*.ipam.config.[].aux_addresses", refused, "write ipam.config with a subnet"},
	{"networks.*.ipam.config.[].gateway", refused, "write ipam.config with a subnet"},
	{"networks.*.ipam.config.[].ip_range", refused, "write ipam.config with a subnet"},
	{"volumes", honoured, ""},
	{"volumes.*.labels", withoutEffect, "nothing reads them"},
	{"configs", honoured, ""},
	{"configs.*.labels", withoutEffect, "nothing reads them"},
	{"configs.*.template_driver", refused, "write the content itself"},
	{"secrets", honoured, ""},
	{"secrets.*.labels", withoutEffect, "nothing reads them"},
	{"secrets.*.driver", refused, "write file, environment or external"},
	{"secrets.*.driver_opts", refused, "write file, environment or external"},
	{"secrets.*.template_driver", refused, "write the content itself"},
}

// keyNode is the table as a tree: a key, with the keys below it.
type keyNode struct {
	*composeKey
	below map[string]*keyNode
	// open: keys below it that are not in the tree are its own.
	open bool
}

func newKeyTree() *keyNode {
	root := &keyNode{below: map[string]*keyNode{}}
	for i := range composeKeys {
		at := root
		for name := range strings.SplitSeq(composeKeys[i].path, ".") {
			if at.below[name] == nil {
				at.below[name] = &keyNode{composeKey: at.composeKey, below: map[string]*keyNode{}, open: at.open}
			}
			at = at.below[name]
		}
		at.composeKey = &composeKeys[i]
		at.open = composeKeys[i].path != "services" // compose-go judges the others' keys
	}
	return root
}

// find returns the entry of a key below n; nil if there is none.
func (n *keyNode) find(name string) *keyNode {
	if found := cmp.Or(n.below[name], n.below["*"]); found != nil {
		return found
	}
	if n.open {
		return &keyNode{composeKey: n.composeKey, open: true}
	}
	return nil
}

// place is where something is written.
type place struct {
	file string
	line int
}

func (p place) String() string { return p.file + ":" + strconv.Itoa(p.line) }

// keyWalk is the walk over the files of a project.
type keyWalk struct {
	swarm bool
	// isSet reports whether a variable is set.
	isSet func(name string) bool
	// lines are where keys and items are, by their paths.
	lines    map[string]place
	notes    []string
	problems []error
	visits   int
	tree     *keyNode
	// others are files that this file includes or extends, with the paths of these keys.
	others []otherFile
	file   string
}

type otherFile struct {
	path    string
	at      place
	include bool
}

// maxVisits bounds the walk: aliases may repeat what they stand for again and again.
const maxVisits = 100_000

// maxComposeProblems is how many mistakes are told at once.
const maxComposeProblems = 20

func (w *keyWalk) fail(at place, format string, args ...any) {
	if len(w.problems) < maxComposeProblems {
		w.problems = append(w.problems, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
	}
}

// read walks over one file.
func (w *keyWalk) read(file string, content []byte) error {
	w.file, w.others = file, nil
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	if len(document.Content) == 0 {
		return fmt.Errorf("read %s: it is empty", file)
	}
	return w.walk(document.Content[0], nil, w.tree)
}

func (w *keyWalk) walk(n *yaml.Node, path []string, at *keyNode) error {
	if w.visits++; w.visits > maxVisits {
		return fmt.Errorf("read %s: its aliases (*) stand for too much", w.file)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.walk(n.Alias, path, at)
	case yaml.ScalarNode:
		w.checkVariables(n, path)
	case yaml.SequenceNode:
		next := at.find("[]")
		for i, item := range n.Content {
			itemPath := append(slices.Clip(path), strconv.Itoa(i))
			w.note(itemPath, item)
			if err := w.walk(item, itemPath, cmp.Or(next, at)); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		return w.walkMapping(n, path, at)
	}
	return nil
}

func (w *keyWalk) walkMapping(n *yaml.Node, path []string, at *keyNode) error {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Value == "<<" { // what is merged counts as written here
			for _, from := range merged(value) {
				if err := w.walk(from, path, at); err != nil {
					return err
				}
			}
			continue
		}
		here := place{w.file, key.Line}
		keyPath := append(slices.Clip(path), key.Value)
		if first, twice := seen[key.Value]; twice {
			w.fail(here, "%s is there already, in line %d", shown(keyPath), first)
			continue
		}
		seen[key.Value] = key.Line
		w.note(keyPath, key)
		next := at.find(key.Value)
		if next == nil && strings.HasPrefix(key.Value, "x-") && !strings.HasPrefix(key.Value, "x-weir") {
			continue // an extension, such as a place for anchors
		}
		if next == nil {
			w.fail(here, "%s: unknown key%s", shown(keyPath), nearest(key.Value, at))
			continue
		}
		w.judge(here, keyPath, next)
		w.noteFile(keyPath, value)
		if err := w.walk(value, keyPath, next); err != nil {
			return err
		}
	}
	return nil
}

func merged(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// judge notes or refuses a key that has an entry of its own.
func (w *keyWalk) judge(at place, path []string, n *keyNode) {
	if n.composeKey == nil || strings.Count(n.path, ".") != len(path)-1 {
		return // it belongs to a key above, which was judged
	}
	switch n.as {
	case withoutEffect:
		w.notes = append(w.notes, fmt.Sprintf("%s: %s has no effect: %s", at, shown(path), n.say))
	case refused:
		w.fail(at, "%s is not possible: %s", shown(path), n.say)
	case onEngine:
		if w.swarm {
			w.fail(at, "%s is not possible on a swarm", shown(path))
		}
	}
}

// note records where a path is written first.
func (w *keyWalk) note(path []string, n *yaml.Node) {
	key := strings.Join(path, "\x00")
	if _, known := w.lines[key]; !known {
		w.lines[key] = place{w.file, n.Line}
	}
}

// at returns where the path is written or, if it is nowhere, that of the last key above it.
func (w *keyWalk) at(path ...string) place {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if found, ok := w.lines[strings.Join(path, "\x00")]; ok {
			return found
		}
	}
	return place{w.file, 1}
}

// noteFile notes a file that is included or extended.
func (w *keyWalk) noteFile(path []string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	include := len(path) == 1 && path[0] == "include"
	if include && n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			if item.Kind == yaml.ScalarNode {
				w.others = append(w.others, otherFile{item.Value, place{w.file, item.Line}, true})
			}
		}
	}
	deep := len(path) == 3 && path[0] == "include" && path[2] == "path"
	extends := len(path) == 4 && path[0] == "services" && path[2] == "extends" && path[3] == "file"
	if !deep && !extends {
		return
	}
	for _, item := range merged(n) {
		w.others = append(w.others, otherFile{item.Value, place{w.file, item.Line}, deep})
	}
}

// checkVariables refuses a variable that is not set and has no default, which Compose would take for
// empty.
func (w *keyWalk) checkVariables(n *yaml.Node, path []string) {
	for _, name := range plainVariables(n.Value) {
		if !w.isSet(name) {
			w.fail(place{w.file, n.Line}, "%s: the variable %s is not set: set it in the environment or in .env, or write ${%[3]s:-} for an empty one", shown(path), name)
		}
	}
}

// plainVariables returns the variables of a text that have neither a default nor a message: $NAME and
// ${NAME}.
func plainVariables(text string) (names []string) {
	for {
		i := strings.IndexByte(text, '$')
		if i < 0 || i+1 >= len(text) {
			return names
		}
		text = text[i+1:]
		switch {
		case text[0] == '$':
			text = text[1:]
		case text[0] == '{':
			inside, rest := braced(text[1:])
			if name := nameBegin(inside); name != "" && name == inside {
				names = append(names, name)
			}
			text = rest
		default:
			if name := nameBegin(text); name != "" {
				names = append(names, name)
			}
		}
	}
}

// braced splits a text after its first closing brace that belongs to none in it.
func braced(text string) (inside, rest string) {
	depth := 1
	for i := range len(text) {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// nameBegin returns the name of a variable that a text begins with; empty if it begins with none.
func nameBegin(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	if end < 0 {
		end = len(text)
	}
	if end == 0 || text[0] >= '0' && text[0] <= '9' {
		return ""
	}
	return text[:end]
}

// shown returns a path as users write it.
func shown(path []string) string { return strings.Join(path, ".") }

func nearest(name string, at *keyNode) string {
	known := slices.Sorted(maps.Keys(at.below))
	if near, ok := policy.Nearest(name, known); ok {
		return "; did you mean " + near + "?"
	}
	return ""
}

// err returns all problems.
func (w *keyWalk) err() error { return errors.Join(w.problems...) }

// inside returns the path of a file of the project. Error: it is outside the project's folder.
func inside(dir, base, path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	if relative, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(relative) {
		return "", fmt.Errorf("%s is outside the folder %s", path, dir)
	}
	return path, nil
}
